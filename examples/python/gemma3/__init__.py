"""Gemma 3 270M in NumPy, with everything between QKV projection and attention behind one class.

`python -m gemma3 "prompt"` generates text. The model's code is model.py; what qkvfuse replaces is
prologue.py.
"""
