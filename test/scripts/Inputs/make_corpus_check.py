"""Checks scripts/make-corpus.py on a man tree made up here; argument: the
repository."""
import importlib.util
import pathlib
import sys
import tempfile

sys.path.insert(0, sys.argv[1] + "/scripts")
spec = importlib.util.spec_from_file_location(
    "make_corpus", sys.argv[1] + "/scripts/make-corpus.py")
make_corpus = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_corpus)

SHARED = "This sentence stands in every single page of this made up manual."


def page(name, text):
    return (f'.TH {name} 1\n.SH NAME\n{name}\n.SH TEXT\n{text * 20}\n.PP\n'
            f'{SHARED}\n.SH "跋"\nfooter\n')


with tempfile.TemporaryDirectory() as folder:
    root, out = pathlib.Path(folder, "man"), pathlib.Path(folder, "out")
    for locale in ("", "zh_CN"):
        (root / locale / "man1").mkdir(parents=True)
    for i in range(200):
        name = "page" + "abcdefghij"[i % 10] + "klmnopqrst"[i // 10 % 10] + "xy"[i // 100]
        (root / f"man1/{name}.1").write_text(page(name, f"English text of {name}. "))
        (root / f"zh_CN/man1/{name}.1").write_text(page(name, f"关于{name}的中文文本，很长。"))
    # A translation under another name of the page, and two ways to say so.
    (root / "man1/alias.1").symlink_to("pageakx.1")
    (root / "man1/other.1").write_text(".so man1/pagebkx.1\n")
    for name in ("alias", "other", "pageckx2"):
        (root / f"zh_CN/man1/{name}.1").write_text(page(name, f"关于{name}的中文文本，很长。"))
    (root / "man1/stub.1").write_text(".TH x 1\n.SH NAME\nstub\n")
    (root / "man1/latin.1").write_bytes(b".TH x 1\n.SH NAME\n" + b"caf\xe9 " * 99)
    (root / "man1/mdoc.1").write_text(".Dd today\n.Dt X 1\n.Sh NAME\n" + "mdoc " * 99)
    sizes = make_corpus.build(root, 25, out)
    files = {f.stem: (f.parent.name, f.read_text()) for f in out.glob("*/*.txt")}

split = {name: where for name, (where, _) in files.items()}
names = {name[3:] for name in files}
assert not names & {"stub.1", "latin.1", "mdoc.1"}, "left out"
for name in names:
    both = {split[s + name] for s in ("en-", "zh-") if s + name in split}
    assert len(both) == 1, f"{name} is on both sides"
for alias, page_name in (("alias", "pageakx"), ("other", "pagebkx"), ("pageckx2", "pageckx")):
    assert split[f"zh-{alias}.1"] == split[f"en-{page_name}.1"], alias
assert sum(SHARED in text for _, text in files.values()) == 1, "a paragraph repeats"
assert all("footer" not in text for _, text in files.values())
assert sizes["train"]["en"]["documents"] + sizes["eval"]["en"]["documents"] == 200
assert sizes["train"]["zh"]["documents"] + sizes["eval"]["zh"]["documents"] == 203
evaluated = sum(where == "eval" for where in split.values()) / len(split)
assert 0.15 < evaluated < 0.35, evaluated
print("ok")
