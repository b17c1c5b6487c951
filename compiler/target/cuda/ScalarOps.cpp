// C++ of pure ops on scalars; for tiles it is used inside map.
#include "compiler/target/cuda/KernelPrinter.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace tessera::cuda {

std::string within(const Expression &expression, Expression::Binding limit) {
  return expression.binding <= limit ? expression.text
                                     : "(" + expression.text + ")";
}

llvm::StringRef typeName(Type element) {
  if (element.isF32())
    return "float";
  if (element.isF64())
    return "double";
  if (element.isBF16())
    return "bf16";
  if (element.isF16())
    return "f16";
  if (element.isIndex() || element.isInteger(64))
    return "int64_t";
  if (element.isInteger(32))
    return "int32_t";
  if (element.isInteger(16))
    return "int16_t";
  if (element.isInteger(8))
    return "int8_t";
  if (element.isInteger(1))
    return "bool";
  return "";
}

Expression printNumber(Attribute value) {
  if (auto number = dyn_cast<FloatAttr>(value)) {
    APFloat real = number.getValue();
    bool isDouble = number.getType().isF64();
    if (number.getType().isBF16())
      return {
          llvm::formatv("bf16{{{0:x}}", real.bitcastToAPInt().getZExtValue())
              .str()};
    if (!real.isFinite() && isDouble) // as a float's infinity or NaN
      return {llvm::formatv("double(bitsToFloat({0:x}))",
                            real.isNaN()        ? 0x7fc00000u
                            : real.isNegative() ? 0xff800000u
                                                : 0x7f800000u)
                  .str()};
    if (!real.isFinite())
      return {llvm::formatv("bitsToFloat({0:x})",
                            real.bitcastToAPInt().getZExtValue())
                  .str()};
    llvm::SmallString<32> digits;
    real.toString(digits, isDouble ? 17 : 9, /*FormatMaxPadding=*/4);
    std::string text = digits.str().str();
    if (text.find_first_of(".eE") == std::string::npos)
      text += ".0";
    text += isDouble ? "" : "f";
    return {text, real.isNegative() ? Expression::product : Expression::atom};
  }
  auto number = cast<IntegerAttr>(value);
  if (number.getType().isInteger(1))
    return {number.getValue().isZero() ? "false" : "true"};
  // The least integers have no literal: their digits alone overflow.
  if (number.getValue().isMinSignedValue() &&
      (number.getType().isInteger(32) || number.getType().isInteger(64)))
    return {number.getType().isInteger(32) ? "INT32_MIN" : "INT64_MIN"};
  int64_t integer = number.getValue().getSExtValue();
  std::string text = std::to_string(integer);
  if (number.getType().isInteger(32) || number.getType().isIndex())
    return {text, integer < 0 ? Expression::product : Expression::atom};
  // Explicit, since a C++ literal would be an int.
  if (number.getType().isInteger(64))
    text += "ll";
  return {(typeName(number.getType()) + "(" + text + ")").str()};
}

//===--- tables -----------------------------------------------------------===//

namespace {
struct Operator {
  const char *symbol;
  Expression::Binding binding;
};
} // namespace

// The sampler has exactly the CPU's results. Other divisions may err by two
// units in the last place: exact ones branch to a rare slow path, over which no
// other instruction is moved.
static bool mayDivideApproximately(arith::DivFOp op) {
  auto kernel = op->getParentOfType<tile::KernelOp>();
  return getElementTypeOrSelf(op.getType()).isF32() && kernel &&
         kernel.getSkeleton() != tile::Skeleton::sample;
}

static std::optional<Operator> operatorOf(Operation *op) {
  using Result = std::optional<Operator>;
  return llvm::TypeSwitch<Operation *, Result>(op)
      .Case([](arith::AddFOp) { return Operator{"+", Expression::sum}; })
      .Case([](arith::SubFOp) { return Operator{"-", Expression::sum}; })
      .Case([](arith::MulFOp) { return Operator{"*", Expression::product}; })
      .Case([](arith::DivFOp o) {
        return mayDivideApproximately(o) ? Result()
                                         : Operator{"/", Expression::product};
      })
      .Case([](arith::DivSIOp) { return Operator{"/", Expression::product}; })
      .Case([](arith::RemSIOp) { return Operator{"%", Expression::product}; })
      .Case([](arith::AndIOp) { return Operator{"&", Expression::logic}; })
      .Case([](arith::OrIOp) { return Operator{"|", Expression::logic}; })
      .Case([](arith::XOrIOp) { return Operator{"^", Expression::logic}; })
      .Case([](arith::ShLIOp) { return Operator{"<<", Expression::shift}; })
      .Case([](arith::ShRSIOp) { return Operator{">>", Expression::shift}; })
      .Default([](Operation *) { return Result(); });
}

static bool mayApproximate(Operation *op, arith::FastMathFlags flags) {
  return arith::bitEnumContainsAll(flags, arith::FastMathFlags::afn) &&
         getElementTypeOrSelf(op->getResult(0)).isF32();
}

static llvm::StringRef functionOf(Operation *op) {
  return llvm::TypeSwitch<Operation *, llvm::StringRef>(op)
      .Case([](arith::DivFOp) { return "divide"; })
      .Case([](math::ExpOp) { return "exp"; })
      .Case([](math::Exp2Op o) {
        return mayApproximate(o, o.getFastmath()) ? "exp2Approximate" : "exp2";
      })
      .Case([](math::ExpM1Op) { return "expm1"; })
      .Case([](math::LogOp) { return "log"; })
      .Case([](math::Log2Op) { return "log2"; })
      .Case([](math::Log10Op) { return "log10"; })
      .Case([](math::Log1pOp) { return "log1p"; })
      .Case([](math::TanhOp o) {
        return mayApproximate(o, o.getFastmath()) ? "tanhApproximate" : "tanh";
      })
      .Case([](math::ErfOp) { return "erf"; })
      .Case([](math::SinOp) { return "sin"; })
      .Case([](math::CosOp) { return "cos"; })
      .Case([](math::SqrtOp) { return "sqrt"; })
      .Case([](math::RsqrtOp) { return "rsqrt"; })
      .Case([](math::AbsFOp) { return "abs"; })
      .Case([](math::FloorOp) { return "floor"; })
      .Case([](math::CeilOp) { return "ceil"; })
      .Case([](math::TruncOp) { return "trunc"; })
      .Case([](math::RoundEvenOp) { return "roundEven"; })
      .Case([](math::PowFOp) { return "pow"; })
      .Case([](math::FmaOp) { return "fma"; })
      .Case([](arith::MaximumFOp) { return "maximum"; })
      .Case([](arith::MinimumFOp) { return "minimum"; })
      .Case<arith::MaxSIOp, arith::MaxNumFOp>([](auto) { return "maximum"; })
      .Case<arith::MinSIOp, arith::MinNumFOp>([](auto) { return "minimum"; })
      .Case([](arith::AddIOp) { return "addWrapping"; })
      .Case([](arith::SubIOp) { return "subtractWrapping"; })
      .Case([](arith::MulIOp) { return "multiplyWrapping"; })
      .Case([](arith::DivUIOp) { return "divideUnsigned"; })
      .Case([](arith::RemUIOp) { return "remainderUnsigned"; })
      .Case([](arith::ShRUIOp) { return "shiftRightUnsigned"; })
      .Default([](Operation *) { return ""; });
}

static Expression call(llvm::StringRef function,
                       llvm::ArrayRef<Expression> operands) {
  std::string text = function.str() + "(";
  for (auto [i, operand] : llvm::enumerate(operands))
    text += (i ? ", " : "") + operand.text;
  return {text + ")"};
}

// In parentheses for readers where C++ does not need them: a & (b < c).
static Expression infix(const Operator &op, const Expression &x,
                        const Expression &y) {
  bool isBitwise =
      op.binding == Expression::logic || op.binding == Expression::shift;
  auto left = isBitwise ? Expression::product : op.binding;
  // The right side needs more: a - (b - c).
  auto right = isBitwise ? Expression::product
                         : static_cast<Expression::Binding>(op.binding - 1);
  return {within(x, left) + " " + op.symbol + " " + within(y, right),
          op.binding};
}

//===--- comparisons and conversions --------------------------------------===//

static bool isUnsigned(arith::CmpIPredicate predicate) {
  using P = arith::CmpIPredicate;
  return predicate == P::ult || predicate == P::ule || predicate == P::ugt ||
         predicate == P::uge;
}

static const char *symbolOf(arith::CmpIPredicate predicate) {
  using P = arith::CmpIPredicate;
  switch (predicate) {
  case P::eq:
    return "==";
  case P::ne:
    return "!=";
  case P::slt:
  case P::ult:
    return "<";
  case P::sle:
  case P::ule:
    return "<=";
  case P::sgt:
  case P::ugt:
    return ">";
  case P::sge:
  case P::uge:
    return ">=";
  }
  llvm_unreachable("all predicates are handled");
}

static Expression compare(arith::CmpIOp op, Expression x, Expression y) {
  // Sizes and indices are not negative.
  if (isUnsigned(op.getPredicate()) &&
      !getElementTypeOrSelf(op.getLhs()).isIndex()) {
    x = call("asUnsigned", {x});
    y = call("asUnsigned", {y});
  }
  return infix({symbolOf(op.getPredicate()), Expression::comparison}, x, y);
}

// Ordered comparisons are C++'s own; of the unordered ones, what models use.
static std::optional<Expression> compare(arith::CmpFOp op, const Expression &x,
                                         const Expression &y) {
  using P = arith::CmpFPredicate;
  auto with = [&](const char *symbol) -> Expression {
    return infix({symbol, Expression::comparison}, x, y);
  };
  auto isNot = [&](const char *symbol) -> Expression {
    return {"!(" + with(symbol).text + ")"};
  };
  switch (op.getPredicate()) {
  case P::OEQ:
    return with("==");
  case P::OLT:
    return with("<");
  case P::OLE:
    return with("<=");
  case P::OGT:
    return with(">");
  case P::OGE:
    return with(">=");
  case P::UNE:
    return with("!=");
  case P::UGE:
    return isNot("<");
  case P::UGT:
    return isNot("<=");
  case P::ULE:
    return isNot(">");
  case P::ULT:
    return isNot(">=");
  default:
    return std::nullopt;
  }
}

static std::optional<Expression> convert(Operation *op, const Expression &x) {
  Type from = getElementTypeOrSelf(op->getOperand(0)),
       to = getElementTypeOrSelf(op->getResult(0));
  std::string name = typeName(to).str();
  auto cast = [&](const Expression &value) -> Expression {
    if (from.isBF16() || to.isBF16())
      return call("Convert<" + name + ">::from", {value});
    return call("static_cast<" + name + ">", {value});
  };
  if (isa<arith::ExtUIOp, arith::UIToFPOp, arith::IndexCastUIOp>(op))
    return cast(from.isInteger(1) || from.isIndex() ? x
                                                    : call("asUnsigned", {x}));
  if (isa<arith::ExtSIOp, arith::SIToFPOp>(op) && from.isInteger(1))
    return cast({"-int(" + x.text + ")", Expression::product});
  if (isa<arith::TruncIOp>(op) && to.isInteger(1))
    return Expression{within(x, Expression::product) + " & 1",
                      Expression::logic};
  if (isa<arith::ExtFOp, arith::TruncFOp, arith::ExtSIOp, arith::TruncIOp,
          arith::SIToFPOp, arith::FPToSIOp, arith::IndexCastOp>(op))
    return cast(x);
  if (isa<arith::BitcastOp>(op) && from.isF32())
    return call("static_cast<int32_t>", {call("floatToBits", {x})});
  if (isa<arith::BitcastOp>(op) && to.isF32())
    return call("bitsToFloat", {call("static_cast<uint32_t>", {x})});
  return std::nullopt;
}

// Sizes and indices are neither negative nor near an overflow, so that plain
// arithmetic serves them.
static std::optional<Expression> printIndex(Operation *op,
                                            llvm::ArrayRef<Expression> x) {
  using Result = std::optional<Expression>;
  return llvm::TypeSwitch<Operation *, Result>(op)
      .Case([&](arith::AddIOp) {
        return infix({"+", Expression::sum}, x[0], x[1]);
      })
      .Case([&](arith::SubIOp) {
        return infix({"-", Expression::sum}, x[0], x[1]);
      })
      .Case([&](arith::MulIOp) {
        return infix({"*", Expression::product}, x[0], x[1]);
      })
      .Case([&](arith::DivUIOp) {
        return infix({"/", Expression::product}, x[0], x[1]);
      })
      .Case([&](arith::RemUIOp) {
        return infix({"%", Expression::product}, x[0], x[1]);
      })
      .Case<arith::MinUIOp, arith::MinSIOp>(
          [&](auto) { return call("minimum<int64_t>", x); })
      .Case<arith::MaxUIOp, arith::MaxSIOp>(
          [&](auto) { return call("maximum<int64_t>", x); })
      .Default([](Operation *) { return Result(); });
}

//===--- entry ------------------------------------------------------------===//

std::optional<Expression>
printScalar(Operation *op, llvm::ArrayRef<Expression> x, unsigned result) {
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    Attribute value = constant.getValue();
    if (auto elements = dyn_cast<DenseElementsAttr>(value)) {
      if (!elements.isSplat())
        return std::nullopt;
      value = elements.getSplatValue<Attribute>();
    }
    return printNumber(value);
  }
  if (op->getNumResults() == 1 && op->getResult(0).getType().isIndex())
    if (std::optional<Expression> printed = printIndex(op, x))
      return printed;
  if (std::optional<Operator> symbol = operatorOf(op))
    return infix(*symbol, x[0], x[1]);
  if (llvm::StringRef name = functionOf(op); !name.empty())
    return call(name, x);
  if (auto compareOp = dyn_cast<arith::CmpIOp>(op))
    return compare(compareOp, x[0], x[1]);
  if (auto compareOp = dyn_cast<arith::CmpFOp>(op))
    return compare(compareOp, x[0], x[1]);
  if (isa<arith::NegFOp>(op))
    return Expression{"-" + within(x[0], Expression::atom),
                      Expression::product};
  if (isa<arith::SelectOp>(op))
    return Expression{within(x[0], Expression::logic) + " ? " +
                          within(x[1], Expression::logic) + " : " +
                          within(x[2], Expression::logic),
                      Expression::choice};
  if (isa<arith::MulUIExtendedOp>(op))
    return result == 0 ? infix({"*", Expression::product}, x[0], x[1])
                       : call("multiplyHigh", x);
  return op->getNumOperands() == 1 ? convert(op, x[0]) : std::nullopt;
}

} // namespace tessera::cuda
