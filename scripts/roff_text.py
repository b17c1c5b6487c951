"""Plain text from manual pages written with the man(7) macros.

Not a formatter: a paragraph becomes one line, displays keep their lines, tables become
rows of cells, and layout requests are dropped. Covers the macros used in Debian's manpages packages, including output of
pod2man and Docbook; is_mdoc() detects pages in mdoc(7).
"""
import re

GLYPHS = {
    "em": "\u2014", "en": "\u2013", "hy": "-", "mi": "-", "pl": "+", "bu": "\u2022",
    "aq": "'", "dq": '"', "lq": "\u201c", "rq": "\u201d", "oq": "\u2018", "cq": "\u2019",
    "Bq": "\u201e", "Fo": "\u00ab", "Fc": "\u00bb", "ga": "`", "aa": "\u00b4", "ha": "^",
    "ti": "~", "rs": "\\", "sl": "/", "ba": "|", "or": "|", "at": "@", "sh": "#",
    "Do": "$", "co": "\u00a9", "rg": "\u00ae", "tm": "\u2122", "de": "\u00b0", "mu": "\u00d7",
    "di": "\u00f7", "+-": "\u00b1", "<=": "\u2264", ">=": "\u2265", "!=": "\u2260",
    "==": "\u2261", "->": "\u2192", "<-": "\u2190", "<>": "\u2194", "ua": "\u2191",
    "da": "\u2193", "pc": "\u00b7", "fm": "\u2032", "sd": "\u2033", "if": "\u221e",
    "sq": "\u25a1", "la": "\u27e8", "ra": "\u27e9", "lB": "[", "rB": "]", "lC": "{",
    "rC": "}", "12": "\u00bd", "14": "\u00bc", "34": "\u00be", "S1": "\u00b9",
    "S2": "\u00b2", "S3": "\u00b3", "*a": "\u03b1", "*b": "\u03b2", "*m": "\u03bc",
    "*p": "\u03c0", "*e": "\u03b5", "mc": "\u00b5", "ss": "\u00df", "Po": "\u00a3",
    "Eu": "\u20ac", "ct": "\u00a2", "Ye": "\u00a5", "sc": "\u00a7", "ps": "\u00b6",
    "dg": "\u2020", "ss": "\u00df", "ae": "\u00e6", "AE": "\u00c6", "/o": "\u00f8",
    "/O": "\u00d8", "oa": "\u00e5", "oA": "\u00c5", "o/": "\u00f8", "eq": "=",
    "ul": "_", "ru": "_", "br": "|", "f/": "\u2044", "no": "\u00ac", "is": "\u222b",
    "sr": "\u221a", "ap": "~", "~~": "\u2248", "~=": "\u2245", "**": "*", "OK": "\u2713",
}
ACCENTS = {"'": "\u0301", "`": "\u0300", ":": "\u0308", "^": "\u0302", "~": "\u0303",
           ",": "\u0327"}
# Strings that the macro packages, and pod2man in every page, define.
STRINGS = {"lq": "\u201c", "rq": "\u201d", "R": "\u00ae", "Tm": "\u2122", "L\"": '"',
           "R\"": '"', "C`": "", "C'": "", "--": "--", "PI": "\u03c0", "Aq": "'"}

ESCAPE = re.compile(r"""\\(?:
    (?P<font>[fFgkmMnYV*])(?:\((?P<font2>..)|\[(?P<fontn>[^]\n]*)\]|(?P<font1>.))
  | s(?:[-+]?\((?:..)|[-+]?\[[^]]*\]|[-+]?'[^']*'|[-+]?[0-9]{1,2}|[-+].|.)
  | \((?P<glyph2>..)
  | \[(?P<glyphn>[^]\n]*)\]
  | [hvwxobBlLDNXZARSHC](?P<quote>['"\x01|])(?P<quoted>.*?)(?P=quote)
  | z(?P<zero>.)
  | (?P<other>.)
  )""", re.X | re.S)
ONE_CHARACTER = {"e": "\\", "\\": "\\", "-": "-", " ": " ", "~": " ", "0": " ",
                 "t": "\t", "'": "'", "`": "`", ".": ".", "_": "_", "\"": ""}


def glyph(name):
    if name in GLYPHS:
        return GLYPHS[name]
    if re.fullmatch(r"u[0-9A-F]{4,6}", name):
        code = int(name[1:], 16)
        return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else ""
    if len(name) == 2 and name[0] in ACCENTS and name[1].isalpha():
        return name[1] + ACCENTS[name[0]]
    return ""


def replace_escape(match):
    if match["font"]:
        if match["font"] != "*":
            return ""
        name = match["font2"] or match["fontn"] or match["font1"] or ""
        return STRINGS.get(name, "")
    name = match["glyph2"] or match["glyphn"]
    if name is not None:
        return glyph(name)
    if match["zero"]:
        return match["zero"]
    return ONE_CHARACTER.get(match["other"] or "", "")


def strip_comment(line):
    """Removes \\" and the rest of the line; an escaped backslash before it is text."""
    at = 0
    while (at := line.find("\\", at)) >= 0 and at + 1 < len(line):
        if line[at + 1] in '"#':
            return line[:at]
        at += 2
    return line


def plain(text):
    return ESCAPE.sub(replace_escape, text)


def split_arguments(text):
    """The arguments of a macro call: blanks separate, double quotes group."""
    arguments, at = [], 0
    text = text.replace("\\ ", "\\~")
    while at < len(text):
        if text[at] in " \t":
            at += 1
        elif text[at] == '"':
            at += 1
            piece = []
            while at < len(text):
                if text[at] == '"':
                    if text[at + 1:at + 2] != '"':
                        break
                    at += 1
                piece.append(text[at])
                at += 1
            arguments.append("".join(piece))
            at += 1
        else:
            end = at
            while end < len(text) and text[end] not in " \t":
                end += 1
            arguments.append(text[at:end])
            at = end
    return arguments


def is_wide(char):
    """Chinese and Japanese text and punctuation, which take no spaces."""
    return ("\u2e80" <= char <= "\u9fff" or "\uf900" <= char <= "\ufaff"
            or "\ufe30" <= char <= "\ufe4f" or "\uff00" <= char <= "\uff60"
            or "\U00020000" <= char <= "\U0003ffff")


def join_lines(left, right):
    """Fills two source lines into one, as a reader of either script expects."""
    if not left:
        return right
    if is_wide(left[-1]) and right and is_wide(right[0]):
        return left + right
    return left + " " + right


class Page:
    """Collects the text of one page, line of source by line of source."""

    ALTERNATING = {"BR", "RB", "BI", "IB", "IR", "RI"}
    FONTS = {"B", "I", "SM", "SB", "R", "CW"}
    PARAGRAPHS = {"PP", "P", "LP", "HP", "Sp", "sp", "bp", "Pp", "PARAGRAPH"}
    DISPLAY_BEGIN = {"nf", "EX", "Vb", "CS", "DS", "Ds"}
    DISPLAY_END = {"fi", "EE", "Ve", "CE", "DE", "De"}

    def __init__(self):
        self.blocks = []      # finished paragraphs and displays of the section
        self.sections = [("", self.blocks)]
        self.text = ""        # the paragraph being filled
        self.lines = None     # the display's lines, None while filling
        self.tag_lines = 0    # how many coming text lines are a list item's tag
        self.tag = ""         # a tag waiting for its body
        self.glued = False    # the last line ended in \\c

    def finish_block(self):
        if self.text.strip():
            self.blocks.append(self.text.strip())
        self.text = ""
        if self.lines:
            body = "\n".join(self.lines).strip("\n")
            if body.strip():
                self.blocks.append(body)
        if self.lines is not None:
            self.lines = []

    def end_paragraph(self):
        if self.tag:
            self.text, self.tag = self.tag, ""
        self.finish_block()
        self.tag_lines = 0

    def add_text(self, line):
        glue = line.rstrip().endswith("\\c")
        text = plain(line)
        if self.tag_lines:
            self.tag = self.tag + text.strip() if self.glued else \
                join_lines(self.tag, text.strip())
            if not glue:
                self.tag_lines -= 1
        elif self.lines is not None:
            if self.glued and self.lines:
                self.lines[-1] += text
            else:
                self.lines.append(text.rstrip())
        else:
            text = " ".join(text.split())
            if self.tag:
                # Tag and body are one block of two lines.
                self.finish_block()
                self.text, self.tag = self.tag + "\n" + text, ""
            elif self.text.endswith("\n"):
                self.text += text
            elif text:
                self.text = self.text + text if self.glued else \
                    join_lines(self.text, text)
        self.glued = glue

    def line_break(self):
        if self.lines is None and self.text and not self.text.endswith("\n"):
            self.text += "\n"

    def heading(self, arguments):
        self.end_paragraph()
        title = " ".join(plain(" ".join(arguments)).split())
        self.blocks = []
        self.sections.append((title, self.blocks))

    def result(self):
        self.end_paragraph()
        return self.sections


class Reader:
    """Walks the source: conditions, definitions, tables, macro calls."""

    def __init__(self, source):
        source = source.replace("\r\n", "\n").replace("\\\n", "")
        self.source = source.split("\n")
        self.at = 0
        self.page = Page()
        self.taken = []       # for each open .ie: whether its branch was taken

    def next_line(self):
        line = self.source[self.at]
        self.at += 1
        return line

    def skip_to(self, end):
        while self.at < len(self.source):
            line = self.next_line()
            if re.match(r"^[.']\s*" + re.escape(end) + r"(\s|$)", line):
                return

    def read(self):
        while self.at < len(self.source):
            self.line(self.next_line())
        return self.page.result()

    def line(self, line):
        if line[:1] in (".", "'") and not line.startswith("''"):
            body = line[1:].lstrip(" \t")
            match = re.match(r'([^\s\\"]+|\\")(.*)', body, re.S)
            if match and match[1] != '\\"':
                self.macro(match[1], strip_comment(match[2]))
            elif body.startswith("\\}"):
                self.line(body[2:])
            return
        # The end of a conditional block whose branch was taken.
        text = strip_comment(re.sub(r"\\[{}]", "", line))
        if text != line and not text.strip():
            return
        if not text.strip():
            if self.page.lines is not None:
                self.page.lines.append("")
            else:
                self.page.end_paragraph()
            return
        if text[0] in " \t" and self.page.lines is None:
            self.page.line_break()
        self.page.add_text(text)

    def condition(self, rest):
        """Whether a condition holds on a terminal, and what follows it."""
        rest = rest.lstrip()
        negative = rest.startswith("!")
        rest = rest[negative:]
        if rest[:1] and rest[0] in "nteo":
            # n: a terminal, t: a typesetter; e, o: the page's number.
            value, rest = rest[0] in "no", rest[1:]
        elif rest[:1] == "'" or rest[:1] == '"':
            match = re.match(r"(['\"])(.*?)\1(.*?)\1", rest)
            value = bool(match) and match[2] == match[3]
            rest = rest[match.end():] if match else ""
        else:
            match = re.match(r"\S+", rest)
            value, rest = False, rest[match.end():] if match else ""
        return value != negative, rest.lstrip(" \t")

    def branch(self, take, rest):
        """Takes or skips what a condition governs: a line or a \\{ block."""
        if not rest.startswith("\\{"):
            if take and rest:
                self.line(rest)
            return
        rest = rest[2:].lstrip(" \t")
        if take:
            # The block's end is dropped where it comes along.
            if rest.strip("\\ "):
                self.line(rest)
            return
        depth = 1 + rest.count("\\{") - rest.count("\\}")
        while depth > 0 and self.at < len(self.source):
            line = self.next_line()
            depth += line.count("\\{") - line.count("\\}")

    def macro(self, name, rest):
        page = self.page
        if name == "if":
            self.branch(*self.condition(rest))
        elif name == "ie":
            take, rest = self.condition(rest)
            self.taken.append(take)
            self.branch(take, rest)
        elif name == "el":
            self.branch(not (self.taken.pop() if self.taken else True),
                        rest.lstrip(" \t"))
        elif name in ("de", "de1", "am", "dei"):
            names = rest.split()
            self.skip_to(names[1] if len(names) > 1 else ".")
        elif name == "ig":
            self.skip_to(rest.split()[0] if rest.split() else ".")
        elif name == "TS":
            self.table()
        elif name in ("SH", "SS"):
            page.lines = None
            arguments = split_arguments(rest)
            page.heading(arguments or [self.next_line() if self.at <
                                       len(self.source) else ""])
        elif name in page.PARAGRAPHS:
            page.end_paragraph()
        elif name in ("TP", "TQ"):
            if name == "TQ" and page.tag:
                page.tag += ","
            else:
                page.end_paragraph()
            page.tag_lines = 1
        elif name == "IP":
            page.end_paragraph()
            arguments = split_arguments(rest)
            tag = plain(arguments[0]).strip() if arguments else ""
            if len(tag) > 3:
                page.tag = tag
            elif tag:
                page.text = tag
        elif name in page.DISPLAY_BEGIN:
            page.finish_block()
            page.lines = []
        elif name in page.DISPLAY_END:
            page.finish_block()
            page.lines = None
        elif name in page.FONTS or name in page.ALTERNATING:
            arguments = split_arguments(rest)
            if not arguments:
                return
            joint = "" if name in page.ALTERNATING else " "
            page.add_text(joint.join(arguments))
        elif name in ("br", "YS"):
            page.line_break()
        else:
            self.rare_macro(name, split_arguments(rest))

    def rare_macro(self, name, arguments):
        page = self.page
        if name in ("UR", "MT"):
            if arguments:
                page.add_text("<" + arguments[0] + ">")
        elif name in ("UE", "ME"):
            if arguments:
                page.glued = True
                page.add_text(arguments[0])
        elif name == "SY":
            page.line_break()
            page.add_text(" ".join(arguments))
        elif name == "OP":
            page.add_text("[" + " ".join(arguments) + "]")

    def table(self):
        page = self.page
        page.finish_block()
        tab, rows, in_format = "\t", [], True
        cell_lines = None
        while self.at < len(self.source):
            line = self.next_line()
            if re.match(r"^[.']\s*TE", line):
                break
            if in_format:
                option = re.search(r"tab\s*\((.)\)", line)
                if option and line.rstrip().endswith(";"):
                    tab = option[1]
                in_format = not line.rstrip().endswith(".")
                continue
            if re.match(r"^[.']\s*T&", line):
                in_format = True
                continue
            if cell_lines is not None:
                if not line.startswith("T}"):
                    cell_lines.append(line)
                    continue
                rows[-1][-1] = cell_text(cell_lines)
                cells, cell_lines = line[2:].split(tab)[1:], None
            elif line[:1] in (".", "'"):
                match = re.match(r"[.']\s*(\w+)\s*(.*)", line)
                if not match or match[1] not in page.FONTS | page.ALTERNATING:
                    continue
                joint = "" if match[1] in page.ALTERNATING else " "
                cells = joint.join(split_arguments(match[2])).split(tab)
                rows.append([])
            else:
                cells = strip_comment(line).split(tab)
                rows.append([])
            for cell in cells:
                if cell.strip() == "T{":
                    cell_lines = []
                rows[-1].append(plain(cell))
        page.finish_block()
        lines = []
        for row in rows:
            cells = [" ".join(cell.split()) for cell in row]
            cells = [cell for cell in cells
                     if cell and not re.fullmatch(r"[_=\\^-]+", cell)]
            if cells:
                lines.append("  ".join(cells))
        if lines:
            page.blocks.append("\n".join(lines))


def cell_text(lines):
    """The text of a table's cell that is written as a block of its own (T{ … T})."""
    sections = Reader("\n".join(lines)).read()
    return " ".join(block for _, blocks in sections for block in blocks)


def is_mdoc(source):
    return re.search(r"^\.\s*(Dd|Dt)\s", source, re.M) is not None


def page_sections(source):
    """The page's text: pairs of a heading and its paragraphs and displays. Text
    before the first heading has the heading ""."""
    return Reader(source).read()
