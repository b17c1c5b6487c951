#include "compiler/target/cuda/sass/Sass.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "runtime/support/Text.h"

namespace tessera::sass {
namespace {

constexpr std::string_view kSection = ".section\t.text.";
constexpr std::string_view kKernelPrefix = "tessera_";
constexpr std::size_t kMostInstructions = std::size_t(1) << 20; // of a function

std::string_view trim(std::string_view text) {
  const auto isSpace = [](char c) {
    return c == ' ' || c == '\t' || c == '\r';
  };
  while (!text.empty() && isSpace(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && isSpace(text.back()))
    text.remove_suffix(1);
  return text;
}

bool consume(std::string_view &text, std::string_view prefix) {
  if (!text.starts_with(prefix))
    return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// "0x1f", "-0x4" or "12", and nothing else.
std::optional<std::int64_t> number(std::string_view text) {
  const bool isNegative = consume(text, "-");
  const int base = consume(text, "0x") ? 16 : 10;
  std::uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return static_cast<std::int64_t>(isNegative ? 0 - value : value);
}

/// The number of a register: "R12" with prefix "R", kZero of "RZ" or "PT".
std::optional<std::int16_t> registerNumber(std::string_view text,
                                           std::string_view prefix, char zero,
                                           int limit) {
  if (!consume(text, prefix))
    return std::nullopt;
  if (text == std::string_view(&zero, 1))
    return Operand::kZero;
  if (text.empty() || text.front() < '0' || text.front() > '9')
    return std::nullopt;
  const auto value = number(text);
  if (!value || *value < 0 || *value >= limit)
    return std::nullopt;
  return static_cast<std::int16_t>(*value);
}

/// Sets kind and number if `text` names a register or a predicate.
bool parseRegister(std::string_view text, Operand &to) {
  const auto set = [&](OperandKind kind, std::optional<std::int16_t> found,
                       bool isUniform) {
    if (!found)
      return false;
    to.kind = kind;
    to.number = *found;
    to.isUniform = isUniform;
    return true;
  };
  return set(OperandKind::reg, registerNumber(text, "R", 'Z', 255), false) ||
         set(OperandKind::uniform, registerNumber(text, "UR", 'Z', 255),
             true) ||
         set(OperandKind::predicate, registerNumber(text, "P", 'T', 7),
             false) ||
         set(OperandKind::predicate, registerNumber(text, "UP", 'T', 7), true);
}

/// The inside of brackets: "R4.64+UR6+-0x4".
bool parseAddress(std::string_view text, Operand &to) {
  while (!text.empty()) {
    const std::size_t plus = text.find('+');
    std::string_view term = trim(text.substr(0, plus));
    text = plus == text.npos ? std::string_view() : text.substr(plus + 1);
    if (auto offset = number(term)) {
      constexpr std::int64_t kFar = std::int64_t(1) << 40;
      if (*offset > kFar || *offset < -kFar || std::abs(to.value) > kFar)
        return false;
      to.value += *offset;
      continue;
    }
    const std::size_t dot = term.find('.');
    const bool isWide = dot != term.npos && term.substr(dot) == ".64";
    Operand base;
    if (!parseRegister(term.substr(0, dot), base))
      return false;
    if (to.hasBase && base.kind == OperandKind::uniform) {
      to.other = base.number;
      continue;
    }
    to.hasBase = true;
    to.number = base.number;
    to.isOfUniform = base.kind == OperandKind::uniform;
    to.isWide = isWide;
  }
  return true;
}

/// c[0x0][0x210]; constants of other banks have an unknown value.
bool parseConstant(std::string_view text, Operand &to) {
  if (!consume(text, "c[0x0][") || !text.ends_with(']'))
    return false;
  text.remove_suffix(1);
  to.kind = OperandKind::constant;
  return parseAddress(text, to);
}

bool parseMemory(std::string_view text, Operand &to) {
  if (consume(text, "desc[")) {
    const std::size_t end = text.find(']');
    if (end == text.npos)
      return false;
    text.remove_prefix(end + 1);
  }
  if (!consume(text, "[") || !text.ends_with(']'))
    return false;
  text.remove_suffix(1);
  to.kind = OperandKind::memory;
  return parseAddress(text, to);
}

Operand parseOperand(std::string_view text) {
  Operand result;
  result.text = text;
  if (consume(text, "`(")) {
    result.kind = OperandKind::label;
    result.text = text.substr(0, text.find(')'));
    return result;
  }
  if (auto value = number(text)) {
    result.kind = OperandKind::immediate;
    result.value = *value;
    return result;
  }
  result.isNegated = consume(text, "-");
  result.isInverted = consume(text, "~") || consume(text, "!");
  if (text.ends_with(".reuse"))
    text.remove_suffix(6);
  Operand parsed = result;
  if (parseConstant(text, parsed) || parseMemory(text, parsed = result) ||
      parseRegister(text, parsed = result))
    return parsed;
  return result;
}

/// Operands are separated by commas outside brackets.
std::vector<Operand> parseOperands(std::string_view text) {
  std::vector<Operand> operands;
  int depth = 0;
  std::size_t start = 0;
  const auto add = [&](std::size_t end) {
    if (std::string_view one = trim(text.substr(start, end - start));
        !one.empty())
      operands.push_back(parseOperand(one));
    start = end + 1;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    depth += c == '[' || c == '{' || c == '(';
    depth -= c == ']' || c == '}' || c == ')';
    if (c == ',' && depth == 0)
      add(i);
  }
  add(text.size());
  return operands;
}

/// Reads lines into functions.
class Parser {
public:
  Status line(std::string_view text);
  StatusOr<std::vector<Function>> finish();

private:
  Status instruction(std::string_view text);
  /// "/* 0x000ee2000c1e1900 */": half of the encoding of the last instruction.
  Status encoding(std::string_view text);

  std::vector<Function> functions;
  int halves = 2; ///< of that encoding, that were read
};

Status Parser::encoding(std::string_view text) {
  const auto begin = text.find("/* "), end = text.find(" */");
  const auto value = begin == text.npos || end == text.npos || end < begin + 3
                         ? std::nullopt
                         : number(text.substr(begin + 3, end - begin - 3));
  if (!value || halves >= 2)
    return Status::error("the encoding is not two words of 64 bits");
  if (++halves < 2)
    return Status::success();
  const std::uint64_t bits = static_cast<std::uint64_t>(*value) >> 41;
  Control &control = functions.back().instructions.back().control;
  control.stall = bits & 15;
  control.written = bits >> 5 & 7;
  control.read = bits >> 8 & 7;
  control.waits = bits >> 11 & 63;
  return Status::success();
}

Status Parser::instruction(std::string_view text) {
  consume(text, "/*");
  const std::size_t close = text.find("*/"), end = text.find(';');
  const auto address = close == text.npos
                           ? std::nullopt
                           : number("0x" + std::string(text.substr(0, close)));
  if (!address || end == text.npos || end < close || *address >= 1 << 28)
    return Status::error("an instruction has an address in /* */ and ends in "
                         "a semicolon");
  if (halves != 2)
    return Status::error("the instruction before has no encoding; run nvdisasm "
                         "with -hex");
  Function &function = functions.back();
  if (function.instructions.size() >= kMostInstructions)
    return Status::error("a function has more than {} instructions",
                         kMostInstructions);
  Instruction one;
  one.address = static_cast<std::uint32_t>(*address);
  std::string_view code = trim(text.substr(close + 2, end - close - 2));
  one.guard.kind = OperandKind::predicate;
  if (consume(code, "@")) {
    const std::size_t space = code.find(' ');
    one.guard = parseOperand(code.substr(0, space));
    if (space == code.npos || one.guard.kind != OperandKind::predicate)
      return Status::error("{} is not a predicate",
                           quote(code.substr(0, space)));
    code = trim(code.substr(space));
  }
  const std::size_t space = code.find(' ');
  one.opcode = code.substr(0, space);
  if (one.opcode.empty())
    return Status::error("an instruction has an opcode");
  if (space != code.npos)
    one.operands = parseOperands(code.substr(space));
  function.instructions.push_back(std::move(one));
  halves = 0;
  return encoding(text.substr(end));
}

Status Parser::line(std::string_view raw) {
  std::string_view text = trim(raw);
  if (consume(text, kSection)) {
    std::string_view name = text.substr(0, text.find(','));
    consume(name, kKernelPrefix);
    functions.push_back({std::string(name), {}, {}});
    return Status::success();
  }
  if (functions.empty() || text.empty())
    return Status::success();
  if (text.starts_with("/* 0x"))
    return encoding(text);
  if (text.starts_with("/*"))
    return instruction(text);
  if (text.ends_with(':') && !text.starts_with("//")) {
    text.remove_suffix(1);
    Function &function = functions.back();
    function.labels.emplace(
        text, static_cast<std::int64_t>(function.instructions.size()));
  }
  return Status::success();
}

StatusOr<std::vector<Function>> Parser::finish() {
  if (halves != 2)
    return Status::error("the last instruction has no encoding; run nvdisasm "
                         "with -hex");
  for (Function &function : functions)
    for (Instruction &one : function.instructions)
      for (Operand &operand : one.operands) {
        if (operand.kind != OperandKind::label)
          continue;
        auto found = function.labels.find(operand.text);
        operand.value =
            found == function.labels.end() ? Operand::kZero : found->second;
      }
  return std::move(functions);
}

} // namespace

bool Instruction::has(std::string_view modifier) const {
  std::string_view rest = opcode;
  for (std::size_t dot = rest.find('.'); dot != rest.npos;
       dot = rest.find('.')) {
    rest.remove_prefix(dot + 1);
    if (rest.substr(0, rest.find('.')) == modifier)
      return true;
  }
  return false;
}

std::string_view Instruction::base() const {
  return std::string_view(opcode).substr(0, opcode.find('.'));
}

StatusOr<std::vector<Function>> parse(std::string_view text) {
  Parser parser;
  for (std::size_t count = 1; !text.empty(); ++count) {
    const std::size_t end = text.find('\n');
    if (Status status = parser.line(text.substr(0, end)); !status.ok())
      return Status::error("line {} of SASS: {}", count, status.message());
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return parser.finish();
}

} // namespace tessera::sass
