# SPDX-License-Identifier: Apache-2.0
"""Writes objectives.txt: losses of TRL's trainers for given log-probabilities and rewards.

    pip install trl
    make_objectives.py > objectives.txt

TRL's code computes the losses, DPOTrainer._compute_loss and GRPOTrainer._compute_loss, with mock trainers. Each
line is a case: kind, name, rows, context, classes, and the settings (beta; or clips, bound and kl); then logits,
targets, weights, the reference's log-probabilities and, for grpo, the old ones and the advantages of the rows;
the loss, and its gradient with respect to the logits. Computed in double precision from values that fit in
floats. tests/graph/test_objective_losses.c reads it.
"""
import contextlib
import types
from unittest import mock

import torch
import trl
from trl.trainer import dpo_trainer, grpo_trainer

torch.manual_seed(5)
ROWS, CONTEXT, CLASSES = 4, 5, 7


def coarse(t):
    return torch.round(t * 256).double() / 256


def logprobs(logits, targets):
    return torch.log_softmax(logits, -1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def trainer(**settings):
    t = mock.MagicMock()
    for name, value in settings.items():
        setattr(t, name, value)
    t.model.training = True
    t.accelerator.num_processes = 1
    t.accelerator.device = "cpu"
    t.accelerator.gather = t.accelerator.gather_for_metrics = t.accelerator.reduce = lambda x, *_, **__: x
    return t


class Outputs:
    """Outputs of a model: log-probabilities, and zeros for values that TRL only reports."""

    def __init__(self, log_probs):
        self.log_probs = log_probs

    def __getattr__(self, name):
        zeros = torch.zeros_like(self.log_probs)
        return zeros.bool() if name.startswith("is_") else zeros


def answers():
    """Returns the mask of answers of several lengths after prompts of several lengths."""
    mask = torch.zeros(ROWS, CONTEXT)
    for row, (begin, end) in enumerate([(0, 3), (1, 5), (2, 4), (0, 5)]):
        mask[row, begin:end] = 1
    return mask.double()


def drawn(scale):
    logits = coarse(torch.randn(ROWS, CONTEXT, CLASSES) * scale).requires_grad_()
    targets = torch.randint(0, CLASSES, (ROWS, CONTEXT))
    near = coarse(logprobs(logits, targets).detach() + torch.randn(ROWS, CONTEXT) * 0.3)
    return logits, targets, near


def show(kind, name, settings, tensors, loss, logits):
    print(kind, name, ROWS, CONTEXT, CLASSES, *settings, *logits.flatten().tolist(),
          *(x for t in tensors for x in t.flatten().tolist()), "{:.12g}".format(loss.item()),
          *map("{:.9g}".format, logits.grad.flatten().tolist()))


def dpo(name, beta, scale):
    logits, targets, reference = drawn(scale)
    mask = answers()
    order = [0, 2, 1, 3]  # TRL puts all chosen answers before all rejected ones
    own = (logprobs(logits, targets) * mask)[order]
    t = trainer(beta=beta, ld_alpha=None, precompute_ref_logps=False, f_divergence_type="reverse_kl",
                loss_types=["sigmoid"], loss_weights=[1.0], use_weighting=False, aux_loss_enabled=False)
    t.ref_model = lambda **_: types.SimpleNamespace(log_probs=(reference * mask)[order])
    model = lambda **_: Outputs(own)  # noqa: E731
    inputs = {"input_ids": torch.zeros(ROWS, CONTEXT + 1, dtype=torch.long),
              "attention_mask": torch.ones(ROWS, CONTEXT + 1, dtype=torch.long),
              "completion_mask": torch.cat([torch.zeros(ROWS, 1), mask[order]], 1).long()}
    with mock.patch.object(dpo_trainer, "is_peft_model", lambda _: False), \
            mock.patch.object(dpo_trainer, "disable_gradient_checkpointing", lambda *_: contextlib.nullcontext()):
        loss = dpo_trainer.DPOTrainer._compute_loss(t, model, inputs, False)
    loss.backward()
    show("dpo", name, [beta], [targets, mask, reference], loss, logits)


def grpo(name, clips, bound, kl, scale):
    logits, targets, old = drawn(scale)
    mask = answers()
    reference = coarse(old + torch.randn(ROWS, CONTEXT) * 0.2)
    advantages = coarse(torch.randn(ROWS))
    lp = logprobs(logits, targets)
    t = trainer(beta=kl, epsilon_low=clips[0], epsilon_high=clips[1], loss_type="bnpo", top_entropy_quantile=1.0,
                off_policy_mask_threshold=None, importance_sampling_level="token", use_vllm=False,
                aux_loss_enabled=False, _entropy_bonus_enabled=False, current_gradient_accumulation_steps=1)
    t.args.delta = bound or None
    t.args.use_bias_correction_kl = False
    t._get_per_token_logps_and_entropies = lambda *_, **__: (lp, torch.zeros_like(lp), None)
    inputs = {"prompt_ids": torch.zeros(ROWS, 1), "prompt_mask": torch.ones(ROWS, 1), "completion_ids": targets,
              "completion_mask": mask, "advantages": advantages, "old_per_token_logps": old,
              "ref_per_token_logps": reference}
    loss = grpo_trainer.GRPOTrainer._compute_loss(t, None, inputs)
    loss.backward()
    show("grpo", name, [*clips, bound, kl], [targets, mask, reference, old, advantages], loss, logits)


print("# made by make_objectives.py with TRL", trl.__version__)
dpo("usual", 0.1, 1.0)
dpo("steep", 2.0, 2.0)
grpo("usual", (0.2, 0.2), 3.0, 0.0, 1.0)
grpo("kl", (0.2, 0.2), 3.0, 0.25, 1.0)
grpo("higher", (0.125, 0.5), 0, 0.0, 1.5)
grpo("bound", (0.2, 0.2), 1.25, 0.5, 2.0)
