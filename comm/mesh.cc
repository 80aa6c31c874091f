/* Gloo brings connections over TCP, a thread that serves them, and buffers that any
 * of them may fill. Which collective moves what, and in which order sums are made,
 * is ours to say, above (comm/collective.c). */
#include "comm/mesh.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

/* Gloo's idea of a store over the caller's. */
class Store : public gloo::rendezvous::Store {
 public:
  Store(const sli_store &store, const char *name) : store_(store), prefix_(name) {}

  void set(const std::string &key, const std::vector<char> &data) override {
    if (!store_.set(store_.ctx, name(key).c_str(), data.data(), data.size()))
      throw std::runtime_error("its address could not be left for the others");
  }

  std::vector<char> get(const std::string &key) override {
    size_t bytes = 0;
    std::unique_ptr<void, decltype(&free)> data(store_.get(store_.ctx, name(key).c_str(), &bytes),
                                                &free);
    if (!data) throw std::runtime_error("there is no address of member " + key);
    auto first = static_cast<const char *>(data.get());
    return std::vector<char>(first, first + bytes);
  }

  void wait(const std::vector<std::string> &keys) override {
    for (auto &key : keys) get(key);
  }

  void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &) override {
    wait(keys);
  }

 private:
  std::string name(const std::string &key) const { return prefix_ + "/" + key; }

  const sli_store store_;
  const std::string prefix_;
};

/* As long as it takes: sli_mesh_stop ends it. */
constexpr std::chrono::milliseconds forever = std::chrono::hours(24 * 365);

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

void say(sli_mesh_error *error, int member, const char *text) {
  error->member = member;
  std::snprintf(error->text, sizeof error->text, "%s", text);
}

}  // namespace

struct sli_mesh {
  sli_mesh(int self_, int nmembers_) : self(self_), nmembers(nmembers_), gloo(self_, nmembers_) {}

  const int self, nmembers;
  gloo::rendezvous::Context gloo;
  uint64_t exchanges = 0;
  bool failed = false;

  std::atomic<bool> stopped{false}; /* any thread sets it, under the lock */
  std::mutex lock;                  /* of what follows */
  std::vector<Buffer> in, out; /* of the exchange under way; none for what has no bytes */

  void post(const sli_mesh_part *parts);
  void forget();
};

/* Receives first, so that what comes early has its place. */
void sli_mesh::post(const sli_mesh_part *parts) {
  std::lock_guard<std::mutex> hold(lock);
  if (stopped) throw std::runtime_error("stopped");
  exchanges++;
  in.resize(nmembers);
  out.resize(nmembers);
  for (int m = 0; m < nmembers; m++) {
    if (m == self) continue;
    if (parts[m].in_bytes) in[m] = gloo.createUnboundBuffer(parts[m].in, parts[m].in_bytes);
    if (parts[m].out_bytes)
      out[m] = gloo.createUnboundBuffer(const_cast<void *>(parts[m].out), parts[m].out_bytes);
  }
}

void sli_mesh::forget() {
  std::lock_guard<std::mutex> hold(lock);
  in.clear();
  out.clear();
}

void sli_mesh_close(sli_mesh *mesh) { delete mesh; }

sli_mesh *sli_mesh_open(int self, int nmembers, const char *name, const char *address,
                        const sli_store *store, int open_ms, sli_mesh_error *error) try {
  gloo::transport::tcp::attr attr;
  attr.hostname = address;
  auto device = gloo::transport::tcp::CreateDevice(attr);
  auto mesh = std::make_unique<sli_mesh>(self, nmembers);
  mesh->gloo.setTimeout(std::chrono::milliseconds(open_ms));
  Store gloo_store(*store, name);
  mesh->gloo.connectFullMesh(gloo_store, device);
  return mesh.release();
} catch (const std::exception &e) {
  say(error, -1, e.what());
  return nullptr;
}

bool sli_mesh_exchange(sli_mesh *mesh, const sli_mesh_part *parts, sli_mesh_error *error) {
  int member = -1;
  if (mesh->failed) {
    say(error, -1, "it failed before");
    return false;
  }
  try {
    mesh->post(parts);
    auto each = [&](std::vector<Buffer> &buffers, auto &&act) {
      for (member = 0; member < mesh->nmembers; member++)
        if (buffers[member]) act(*buffers[member]);
      member = -1;
    };
    auto check = [](bool done) {
      if (!done) throw std::runtime_error("stopped");
    };
    each(mesh->in, [&](auto &buffer) { buffer.recv(member, mesh->exchanges); });
    each(mesh->out, [&](auto &buffer) { buffer.send(member, mesh->exchanges); });
    each(mesh->in, [&](auto &buffer) { check(buffer.waitRecv(forever)); });
    each(mesh->out, [&](auto &buffer) { check(buffer.waitSend(forever)); });
  } catch (const std::exception &e) {
    say(error, mesh->stopped ? -1 : member, mesh->stopped ? "stopped" : e.what());
    mesh->failed = true;
  }
  mesh->forget();
  return !mesh->failed;
}

void sli_mesh_stop(sli_mesh *mesh) {
  std::lock_guard<std::mutex> hold(mesh->lock);
  mesh->stopped = true;
  for (auto &buffer : mesh->in)
    if (buffer) buffer->abortWaitRecv();
  for (auto &buffer : mesh->out)
    if (buffer) buffer->abortWaitSend();
}
