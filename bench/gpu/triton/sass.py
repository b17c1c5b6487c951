"""What nvdisasm's text of a kernel says of its main loop, in the same way for ours
and for others'."""
import re
import struct

INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+((?:@!?U?P\w+ )?)([A-Z][\w.]*)([^;]*);")
LABEL = re.compile(r"(\.L\w*):")
REGISTER = re.compile(r"\bR(\d+)(?:\.64|\.reuse|\.X\d+)*\b")
PRODUCTS = ("HGMMA", "HMMA")
SYNCHRONIZES = ("BAR", "SYNCS", "FENCE", "MEMBAR", "WARPSYNC", "DEPBAR", "LDGDEPBAR",
                "WARPGROUP", "ERRBAR", "BSYNC", "UTMACMDFLUSH")


class Instruction:
    def __init__(self, guard, name, operands):
        self.guard, self.name, self.operands = guard.strip(), name, operands.strip()
        self.base = name.split(".")[0]

    def bytes(self):
        """Of an access by one thread."""
        for part in self.name.split(".")[1:]:
            if part in ("64", "128"):
                return int(part) // 8
            if part in ("U8", "S8", "U16", "S16"):
                return int(part[1:]) // 8
        return 4

    def shape(self):
        """Rows, columns and terms of a product of tensor cores."""
        for part in self.name.split("."):
            if match := re.fullmatch(r"(\d+)x(\d+)x(\d+)", part):
                return tuple(map(int, match.groups()))
            if part == "16816":
                return 16, 8, 16
            if part == "1688":
                return 16, 8, 8
        return 0, 0, 0


def parse(text):
    """The instructions, and (first, last) of each loop."""
    code, labels, jumps = [], {}, []
    for line in text.splitlines():
        if match := LABEL.match(line.strip()):
            labels[match[1]] = len(code)
        elif match := INSTRUCTION.search(line):
            code.append(Instruction(*match.groups()[1:]))
            if code[-1].base == "BRA" and (to := re.search(r"\.L\w*", match[4])):
                jumps.append((len(code) - 1, to[0]))
    loops = [(labels[to], at) for at, to in jumps if labels.get(to, at + 1) < at]
    return code, sorted(loops, key=lambda loop: loop[1] - loop[0])


def main_loop(code, loops):
    """The innermost loop with the most products, or else with the most bytes
    loaded; None: there is none."""
    def products(loop):
        return sum(one.base in PRODUCTS for one in code[loop[0]:loop[1] + 1])

    def loaded(loop):
        return sum(one.bytes() for one in code[loop[0]:loop[1] + 1]
                   if one.base in ("LDG", "LDGSTS"))
    inner = [loop for loop in loops
             if not any(other != loop and loop[0] <= other[0] and other[1] <= loop[1]
                        for other in loops)]
    for weight in (products, loaded):
        best = max(inner, key=weight, default=None)
        if best and weight(best):
            return best
    return None


def most_loaded(code):
    """Bytes that a thread has loaded before it first uses any of them: the most."""
    pending, most = {}, 0
    for one in code:
        registers = [int(r) for r in REGISTER.findall(one.operands)]
        isLoad = one.base in ("LDG", "LD")
        used = registers[1:] if isLoad else registers
        if any(register in pending for register in used):
            most = max(most, sum(pending.values()))
            pending.clear()
        if isLoad and registers:
            # Its other registers follow; one key for each load's first and last.
            pending[registers[0]] = one.bytes()
    return max(most, sum(pending.values()))


def between_products(code):
    """The longest runs of other instructions between two products of a loop."""
    at = [i for i, one in enumerate(code) if one.base in PRODUCTS]
    return sorted((b - a - 1 for a, b in zip(at, at[1:])), reverse=True)


def describe(text):
    code, loops = parse(text)
    loop = main_loop(code, loops)
    body = code[loop[0]:loop[1] + 1] if loop else code
    products = [one for one in body if one.base in PRODUCTS]
    gaps = between_products(body)
    return {
        "instructions": len(code),
        "loop": len(body) if loop else 0,
        "products": len(products),
        "terms": sum(m * n * k for m, n, k in map(Instruction.shape, products)),
        "others": len(body) - len(products),
        "longest": gaps[0] if gaps else 0,
        "synchronizes": sum(one.base in SYNCHRONIZES for one in body),
        "functions": sum(one.base == "MUFU" for one in body),
        "branches": sum(one.base == "BRA" for one in body),
        "spills": sum(one.base in ("LDL", "STL") for one in code),
        "loaded": most_loaded(code),
        "width": max((one.bytes() for one in body if one.base in ("LDG", "LDGSTS")),
                     default=0),
        "stages": any(one.base in ("LDGSTS", "UTMALDG", "UBLKCP") for one in code),
    }


def registers(cubin):
    """Of a thread of a cubin's only kernel: EIATTR_REGCOUNT in section .nv.info."""
    start, = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQ", cubin, start + i * size)
               for i in range(count)]
    for name, _, _, _, at, length in headers:
        text = headers[names][4] + name
        if cubin[text:cubin.index(b"\0", text)] != b".nv.info":
            continue
        end = at + length
        while at < end:
            form, attribute, value = struct.unpack_from("<BBH", cubin, at)
            if (form, attribute) == (4, 0x2f):  # the function's symbol, and its count
                return struct.unpack_from("<I", cubin, at + 8)[0]
            at += 4 + (value if form == 4 else 0)
    raise ValueError("the cubin says no number of registers")


def concurrent(threads, registers, shared):
    """Blocks that an SM of an H100 or H200 has at once."""
    warps = -(-threads // 32)
    ofWarp = -(-max(registers, 1) * 32 // 256) * 256
    return min(32, 2048 // (32 * warps), 65536 // (ofWarp * warps),
               (228 << 10) // (shared + 1024))
