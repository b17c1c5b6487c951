#!/usr/bin/env python3
"""Builds the demo's corpus: English and Chinese text from Debian's manual pages.

    make-corpus.py -o corpus [--debs FOLDER] [--eval-percent 5]

Reads the packages manpages, manpages-dev and manpages-zh: from --debs, else through
`apt-get download` (no root needed), else as installed.
Removes the roff markup, normalizes to NFC, drops paragraphs that occur in an
earlier document already, and writes one document a file:

    corpus/train/en-open.2.txt  corpus/eval/zh-ls.1.txt  corpus/corpus.json

The split is by group: a page's English and Chinese versions, and all pages that link
to each other, are in the same split, so that no translation of an evaluated page is
trained on. Needs only python3; takes seconds.
"""
import argparse
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata

import roff_text

PACKAGES = ["manpages", "manpages-dev", "manpages-zh"]
# Traditional Chinese pages are conversions of the simplified ones.
LOCALES = {"": "en", "zh_CN": "zh"}
MIN_DOCUMENT = 200   # characters; shorter pages are stubs
MIN_PARAGRAPH = 40   # characters; shorter paragraphs may repeat
# Sections on the translator and date, equal in hundreds of pages.
FOOTERS = re.compile(r"跋|译者|翻译计划|翻譯計劃|中文版?(维护|更新|最新|翻译|审校|校对)"
                     r"|\[(说明|维护|更新|翻译)")
WIDE = "[\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60]"


def unpack(debs, folder):
    for deb in debs:
        subprocess.run(["dpkg-deb", "-x", str(deb), str(folder)], check=True)
    return folder / "usr/share/man"


def find_pages(debs, work):
    """The root of a man tree, and where it came from."""
    if debs:
        files = [deb for name in PACKAGES for deb in debs.glob(f"{name}_*.deb")]
        if len(files) < len(PACKAGES):
            sys.exit(f"{debs}: needs one .deb each of {', '.join(PACKAGES)}")
        return unpack(files, work / "root"), [deb.name for deb in sorted(files)]
    download = work / "debs"
    download.mkdir()
    try:
        subprocess.run(["apt-get", "download", "-q", *PACKAGES], cwd=download,
                       check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE, text=True, timeout=300)
        files = sorted(download.glob("*.deb"))
        return unpack(files, work / "root"), [deb.name for deb in files]
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", "") or str(error)).strip()
        print(f"apt-get download failed ({reason.splitlines()[-1]}); taking the "
              "installed pages", file=sys.stderr)
    return installed_pages(work / "installed"), ["installed pages"]


def installed_pages(root):
    """A copy of the packages' pages where they are installed: the same pages as
    in the packages' files."""
    listed = subprocess.run(["dpkg-query", "-L", *PACKAGES], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    man = pathlib.Path("/usr/share/man")
    pages = [path for path in map(pathlib.Path, listed.stdout.splitlines())
             if path.is_relative_to(man) and path.is_file()]
    if listed.returncode or not pages:
        sys.exit("no manual pages found: run `apt-get update`, or install "
                 + " ".join(PACKAGES))
    for page in pages:
        copy = root / page.relative_to(man)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, copy, follow_symlinks=False)
    return root


def family(name):
    """The key of related pages: openat and openat2, all of iso_8859."""
    return re.sub(r"[-_.]?[0-9]+$", "", name.lower()) or name


def page_name(path):
    """open.2.gz → ("open", "2")."""
    stem = path.name.removesuffix(".gz")
    name, _, section = stem.rpartition(".")
    return name, section


class Groups:
    """Names of pages that belong together (union-find)."""

    def __init__(self):
        self.parent = {}

    def root(self, name):
        name = self.parent.setdefault(name, name)
        while name != self.parent[name]:
            name = self.parent[name]
        return name

    def join(self, a, b):
        a, b = sorted((self.root(a), self.root(b)))
        self.parent[b] = a


def read_source(path):
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    try:
        # Some pages lack the line break before their last heading.
        return re.sub(r"(?<=[^\n])\.SH \"", "\n.SH \"", data.decode("utf-8"))
    except UnicodeDecodeError:
        return None


def collect(root):
    """All pages' sources by (language, name, section), and the groups."""
    sources, groups = {}, Groups()
    for locale, language in LOCALES.items():
        for path in sorted((root / locale).glob("man[1-8]/*")):
            name, section = page_name(path)
            if not name:
                continue
            key = family(name)
            groups.root(key)
            if path.is_symlink():
                groups.join(key, family(page_name(pathlib.Path(os.readlink(path)))[0]))
                continue
            source = read_source(path)
            if source is None or roff_text.is_mdoc(source):
                continue
            link = re.match(r"(?:[.']\\\".*\n)*\.so\s+(\S+)", source)
            if link:
                groups.join(key, family(page_name(pathlib.Path(link[1]))[0]))
                continue
            sources[language, name, section] = source
    return sources, groups


def clean(text):
    text = unicodedata.normalize("NFC", text)
    text = text.replace("\u00a0", " ").replace("\u00ad", "").replace("\ufeff", "")
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffd]", "", text)
    text = re.sub(r"[ \t]+$", "", text, flags=re.M)
    # Old translations set spaces between words so that roff could break lines.
    text = re.sub(f"(?<={WIDE}) (?={WIDE})", "", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def is_chinese(text):
    wide = sum("\u3400" <= c <= "\u9fff" for c in text)
    alphabetic = sum(c.isalpha() for c in text)
    return wide * 5 > alphabetic


def fingerprint(block):
    return hashlib.blake2b("".join(block.split()).encode(), digest_size=12).digest()


def document(sections, seen):
    """The page without paragraphs that an earlier page had; "" for a stub."""
    kept = []
    for title, blocks in sections:
        title = clean(title)
        if FOOTERS.search(title):
            continue
        new = []
        for block in map(clean, blocks):
            if len(block) >= MIN_PARAGRAPH:
                mark = fingerprint(block)
                if mark in seen:
                    continue
                seen.add(mark)
            if block:
                new.append(block)
        kept += ([title] if title else []) + new if new else []
    text = "\n\n".join(kept)
    return text + "\n" if len(text) >= MIN_DOCUMENT else ""


def is_eval(group, percent):
    digest = hashlib.sha256(group.encode()).digest()
    return int.from_bytes(digest[:8], "big") % 10_000 < percent * 100


def build(root, percent, out):
    sources, groups = collect(root)
    seen, sizes = set(), {}
    order = sorted(sources, key=lambda k: (is_eval(groups.root(family(k[1])), percent), k))
    for split in ("train", "eval"):
        (out / split).mkdir(parents=True)
    # Training documents first: they keep the paragraphs common with evaluated ones.
    for language, name, section in order:
        text = document(roff_text.page_sections(sources[language, name, section]), seen)
        if not text:
            continue
        split = "eval" if is_eval(groups.root(family(name)), percent) else "train"
        # An untranslated page in the Chinese tree is English.
        spoken = "zh" if is_chinese(text) else "en"
        (out / split / f"{language}-{name}.{section}.txt").write_text(text, "utf-8")
        entry = sizes.setdefault(split, {}).setdefault(
            spoken, {"documents": 0, "characters": 0, "bytes": 0})
        entry["documents"] += 1
        entry["characters"] += len(text)
        entry["bytes"] += len(text.encode())
    return sizes


def replace_folder(new, out):
    """Puts `new` in the place of `out`, which must be an older corpus."""
    if out.exists():
        if not (out / "corpus.json").is_file():
            sys.exit(f"{out}: exists and is not a corpus; choose another folder")
        shutil.rmtree(out)
    new.rename(out)


def main():
    parser = argparse.ArgumentParser(
        description="Build the demo's corpus from Debian's manual pages.")
    parser.add_argument("-o", "--out", type=pathlib.Path, default="corpus")
    parser.add_argument("--debs", type=pathlib.Path,
                        help="folder with the packages' .deb files")
    parser.add_argument("--eval-percent", type=float, default=5,
                        help="fraction of the groups kept for evaluation")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.out.parent, prefix=".corpus-") as name:
        work = pathlib.Path(name)
        root, origin = find_pages(options.debs, work)
        sizes = build(root, options.eval_percent, work / "new")
        (work / "new" / "corpus.json").write_text(json.dumps(
            {"origin": origin, "eval_percent": options.eval_percent,
             "sizes": sizes}, indent=2) + "\n")
        replace_folder(work / "new", options.out)
    for split, languages in sizes.items():
        for language, size in sorted(languages.items()):
            print(f"{options.out}/{split}: {language} {size['documents']} documents, "
                  f"{size['characters'] / 1e6:.2f} M characters, "
                  f"{size['bytes'] / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
