"""Variants of a GGUF file that keep its length: change_gguf.py FILE FOLDER."""
import pathlib
import sys

source = pathlib.Path(sys.argv[1]).read_bytes()
folder = pathlib.Path(sys.argv[2])


def variant(name, old, new):
    assert len(old) == len(new) and source.count(old) == 1
    (folder / f"{name}.gguf").write_bytes(source.replace(old, new))


NORM = b"output_norm.weight" + (1).to_bytes(4, "little") + (8).to_bytes(8, "little")
variant("key", b"llama.rope.freq_base", b"llama.rope.freq_bass")
variant("tensor", b"output_norm.weight", b"output_form.weight")
variant("type", NORM + (0).to_bytes(4, "little"), NORM + (26).to_bytes(4, "little"))
