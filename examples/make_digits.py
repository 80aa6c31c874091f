#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes digits.u8 from scikit-learn's wheel:

    pip download --no-deps scikit-learn
    python3 make_digits.py scikit_learn-*.whl > digits.u8

The file has 1797 records of 65 bytes: the 8x8 pixels of a handwritten digit, 0 to 16, row by row, and
its class. The digits are the test set of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C.
Kaynak, 1998), UCI Machine Learning Repository, https://doi.org/10.24432/C50P49, CC BY 4.0, in the
order of sklearn/datasets/data/digits.csv.gz.
"""
import gzip
import sys
import zipfile


def main():
    wheel = zipfile.ZipFile(sys.argv[1])
    lines = gzip.decompress(wheel.read("sklearn/datasets/data/digits.csv.gz")).decode().split()
    assert len(lines) == 1797
    for line in lines:
        record = bytes(int(float(number)) for number in line.split(","))
        assert len(record) == 65 and max(record[:64]) <= 16 and record[64] <= 9
        sys.stdout.buffer.write(record)


if __name__ == "__main__":
    main()
