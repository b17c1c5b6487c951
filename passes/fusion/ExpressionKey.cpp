// Keys and costs of expressions.
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/fusion/ClusterExpression.h"
#include "passes/fusion/Fusion.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// An exponential, logarithm or the like of one element, in additions.
static constexpr int64_t kPolynomialCost = 12;

static void print(llvm::raw_ostream &os, const Linear &form) {
  os << form.constant;
  for (int64_t c : form.coefficients)
    os << '+' << c;
}

// Types and attributes are unique in their context, so their addresses identify
// them, at a hundredth of the cost of printing.
static void print(llvm::raw_ostream &os, const ExprNode &node) {
  os << node.kind << ':' << node.element.getAsOpaquePointer() << ' ';
  if (node.kind == ExprNode::load || node.kind == ExprNode::given)
    os << '#' << node.argument << '*' << node.rowStride;
  else if (node.op && node.kind != ExprNode::index) {
    os << node.op->getName().getAsOpaquePointer();
    // Discardable attributes do not say what is computed.
    if (node.kind != ExprNode::constant)
      os << ' ' << node.op->getPropertiesAsAttribute().getAsOpaquePointer();
    // With an offset, an element's index within the batch depends on the shape.
    if (node.kind == ExprNode::random && node.operands.size() > 2)
      os << ' ' << node.op->getResult(0).getType().getAsOpaquePointer();
    if (node.kind == ExprNode::constant)
      os << ' '
         << cast<DenseElementsAttr>(cast<ConstantOp>(node.op).getValue())
                .getSplatValue<Attribute>()
                .getAsOpaquePointer();
  }
  for (unsigned operand : node.operands)
    os << " %" << operand;
  if (!node.address.coefficients.empty()) {
    os << " @";
    print(os, node.address);
  }
  os << '\n';
}

std::string ClusterExpression::key() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (const ExprPiece &piece : pieces) {
    os << "box";
    for (int64_t size : piece.sizes)
      os << ' ' << size;
    os << " groups";
    for (unsigned group : piece.groups)
      os << ' ' << group;
    os << '\n';
    for (const ExprNode &node : piece.nodes)
      print(os, node);
    for (const ExprPiece::Root &root : piece.roots) {
      os << "root %" << root.node << " @";
      print(os, root.address);
      os << '\n';
    }
  }
  return text;
}

// What an element of an elementwise op costs, by the formula that it emits.
static int64_t formulaCost(Elementwise op) {
  Block block;
  OpBuilder builder(op->getContext());
  builder.setInsertionPointToEnd(&block);
  for (Type type : op->getOperandTypes()) {
    Type element = getElementTypeOrSelf(type);
    if (isa<FloatType>(element) && element.getIntOrFloatBitWidth() < 32)
      element = builder.getF32Type();
    else if (auto integer = dyn_cast<IntegerType>(element))
      element = builder.getIntegerType(integer.getWidth());
    block.addArgument(element, op->getLoc());
  }
  op.emitScalar(builder, block.getArguments());
  int64_t cost = 0;
  for (Operation &it : block) {
    if (isa<arith::DivFOp, math::SqrtOp, math::RsqrtOp>(it))
      cost += 4;
    else if (isa<math::MathDialect>(it.getDialect()) && !isa<math::AbsFOp>(it))
      cost += kPolynomialCost;
    else if (!it.hasTrait<OpTrait::ConstantLike>())
      ++cost;
  }
  // A polynomial hides most of the ops around it.
  return std::clamp<int64_t>(cost, 1, kPolynomialCost);
}

int64_t tessera::nodeCost(const ExprNode &node) {
  switch (node.kind) {
  case ExprNode::constant:
  case ExprNode::zero:
  case ExprNode::given:
    return 0;
  case ExprNode::load:
  case ExprNode::index:
    return 1;
  case ExprNode::random:
    return 20;
  case ExprNode::reduce:
    return 0;
  case ExprNode::elementwise:
    break;
  }
  auto elementwise = dyn_cast<Elementwise>(node.op);
  return elementwise ? formulaCost(elementwise) : 1;
}
