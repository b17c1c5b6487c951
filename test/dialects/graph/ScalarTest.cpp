// Elementwise::emitScalar against Elementwise::evaluateScalar: the ops that are
// emitted, folded on constants, give what the reference says.
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Verifier.h"
#include "test/support/GraphTesting.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::testing;

namespace {

const double kFloats[] = {-3.5, -1.0, -0.25, -0.0, 0.0, 0.5, 1.0, 2.75, 11.0};
const double kInts[] = {-128, -7, -1, 0, 1, 2, 5, 127};
const double kBools[] = {0, 1};

ArrayRef<double> valuesOf(Type element) {
  if (isa<FloatType>(element))
    return kFloats;
  return element.isInteger(1) ? ArrayRef(kBools) : ArrayRef(kInts);
}

// Signless where arith wants it.
Type scalarType(Type element) {
  return element.isUnsignedInteger()
             ? IntegerType::get(&context(), element.getIntOrFloatBitWidth())
             : element;
}

TypedAttr attrOf(Type type, double value) {
  if (isa<FloatType>(type))
    return FloatAttr::get(type, value);
  return IntegerAttr::get(type, APInt(type.getIntOrFloatBitWidth(),
                                      static_cast<int64_t>(value), true));
}

// The number that folding all ops of `block` leaves in `result`.
std::optional<double> foldAll(Block &block, Value result) {
  llvm::DenseMap<Value, Attribute> known;
  for (Operation &op : block) {
    SmallVector<Attribute> operands;
    for (Value operand : op.getOperands())
      operands.push_back(known.lookup(operand));
    // The only op used that MLIR does not fold.
    if (isa<math::RsqrtOp>(op)) {
      auto x = cast<FloatAttr>(operands[0]);
      known[op.getResult(0)] =
          FloatAttr::get(x.getType(), 1.0 / std::sqrt(x.getValueAsDouble()));
      continue;
    }
    SmallVector<OpFoldResult> folded;
    if (failed(op.fold(operands, folded)) || folded.empty())
      return std::nullopt;
    known[op.getResult(0)] = isa<Attribute>(folded[0])
                                 ? cast<Attribute>(folded[0])
                                 : known.lookup(cast<Value>(folded[0]));
  }
  Attribute attr = known.lookup(result);
  if (auto number = dyn_cast_if_present<FloatAttr>(attr))
    return number.getValue().convertToDouble();
  if (auto number = dyn_cast_if_present<IntegerAttr>(attr))
    return number.getType().isInteger(1)
               ? static_cast<double>(number.getValue().getZExtValue())
               : static_cast<double>(number.getValue().getSExtValue());
  return std::nullopt;
}

// Emits and folds `op` on `inputs`.
std::optional<double> emitted(Elementwise op, ArrayRef<double> inputs) {
  Block block;
  OpBuilder builder(&context());
  builder.setInsertionPointToStart(&block);
  SmallVector<Value> operands;
  for (auto [operand, input] : llvm::zip_equal(op->getOperands(), inputs))
    operands.push_back(builder.create<arith::ConstantOp>(
        op.getLoc(),
        attrOf(scalarType(tensorType(operand).getElementType()), input)));
  Value result = op.emitScalar(builder, operands);
  EXPECT_EQ(result.getType(),
            scalarType(tensorType(op->getResult(0)).getElementType()))
      << op->getName().getStringRef().str();
  return foldAll(block, result);
}

// The same ops on vectors verify.
void checkVectors(Elementwise op) {
  OwningOpRef<ModuleOp> module(ModuleOp::create(op.getLoc()));
  SmallVector<Type> types;
  for (Value operand : op->getOperands())
    types.push_back(VectorType::get(
        {2, 8}, scalarType(tensorType(operand).getElementType())));
  OpBuilder builder(module->getBodyRegion());
  auto function = builder.create<func::FuncOp>(
      op.getLoc(), "g", builder.getFunctionType(types, {}));
  Block *body = function.addEntryBlock();
  builder.setInsertionPointToStart(body);
  Value result = op.emitScalar(builder, body->getArguments());
  EXPECT_EQ(cast<VectorType>(result.getType()).getShape(),
            ArrayRef<int64_t>({2, 8}));
  builder.create<func::ReturnOp>(op.getLoc());
  EXPECT_TRUE(succeeded(verify(*module))) << op->getName().getStringRef().str();
}

// Calls `visit` with every combination of values for the op's operands.
void forEachInput(Elementwise op, function_ref<void(ArrayRef<double>)> visit) {
  SmallVector<int64_t> counts;
  for (Value operand : op->getOperands())
    counts.push_back(valuesOf(tensorType(operand).getElementType()).size());
  tessera::interpreter::forEachIndex(counts, [&](ArrayRef<int64_t> index) {
    SmallVector<double> inputs;
    for (auto [operand, i] : llvm::zip_equal(op->getOperands(), index))
      inputs.push_back(valuesOf(tensorType(operand).getElementType())[i]);
    visit(inputs);
  });
}

bool agree(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || a == b ||
         std::abs(a - b) <= 1e-13 * (1 + std::abs(b));
}

struct Case {
  std::string name, text;
};

// Every op that can be written as a function of one float.
std::vector<Case> unaryCases() {
  std::vector<Case> cases;
  ScopedDiagnosticHandler quiet(&context(), [](Diagnostic &) {});
  for (RegisteredOperationName name : context().getRegisteredOperations()) {
    std::string op = name.getStringRef().str(),
                text = "func.func @f(%x: tensor<f64>) { %y = " + op +
                       " %x : tensor<f64> return }";
    if (name.hasInterface<Elementwise>() && parse(text))
      cases.push_back({name.stripDialect().str(), text});
  }
  EXPECT_GE(cases.size(), 13u);
  return cases;
}

std::vector<Case> cases() {
  std::vector<Case> cases = unaryCases();
  for (const char *kind : {"erf", "tanh", "quick"}) {
    cases.push_back(
        {"gelu",
         std::string("func.func @f(%x: tensor<f64>) { %y = graph.gelu %x ") +
             kind + " : tensor<f64> return }"});
    cases.push_back(
        {"gelu_grad",
         std::string("func.func @f(%x: tensor<f64>, %g: tensor<f64>) { %y = "
                     "graph.gelu_grad %x, %g ") +
             kind + " : tensor<f64> return }"});
  }
  auto binary = [&](const std::string &op, const std::string &type) {
    cases.push_back({op, "func.func @f(%x: tensor<" + type + ">, %y: tensor<" +
                             type + ">) { %z = graph." + op +
                             " %x, %y : tensor<" + type + "> return }"});
  };
  for (const char *op : {"add", "sub", "mul", "div", "max", "min"})
    for (const char *type : {"f64", "i8", "i32", "i64"})
      binary(op, type);
  binary("pow", "f64");
  for (const char *op : {"and", "or"})
    for (const char *type : {"i1", "i8", "i64"})
      binary(op, type);
  for (const char *predicate : {"eq", "ne", "lt", "le", "gt", "ge"})
    for (const char *type : {"f64", "i8", "i64"})
      cases.push_back({"compare", std::string("func.func @f(%x: tensor<") +
                                      type + ">, %y: tensor<" + type +
                                      ">) { %z = graph.compare %x " +
                                      predicate + " %y : tensor<" + type +
                                      "> -> tensor<i1> return }"});
  for (const char *type : {"f64", "i32", "i1"})
    cases.push_back(
        {"select",
         std::string("func.func @f(%c: tensor<i1>, %x: tensor<") + type +
             ">, %y: tensor<" + type +
             ">) { %z = graph.select %c, %x, %y : tensor<i1>, tensor<" + type +
             "> return }"});
  for (auto [from, to] : {std::pair("f64", "i32"),
                          {"f64", "i8"},
                          {"i8", "f64"},
                          {"i1", "f64"},
                          {"i1", "i32"},
                          {"i8", "i64"},
                          {"i64", "i8"},
                          {"f64", "f64"}})
    cases.push_back({"convert", std::string("func.func @f(%x: tensor<") + from +
                                    ">) { %y = graph.convert %x : tensor<" +
                                    from + "> -> tensor<" + to + "> return }"});
  return cases;
}

TEST(GraphScalars, EmittedOpsComputeTheReference) {
  std::set<std::string> seen;
  for (const Case &testCase : cases()) {
    seen.insert(testCase.name);
    OwningOpRef<ModuleOp> module = parse(testCase.text);
    ASSERT_TRUE(module) << testCase.text;
    auto op = cast<Elementwise>(
        module->lookupSymbol<func::FuncOp>("f").front().front());
    ASSERT_EQ(op->getName().getStringRef(), "graph." + testCase.name);
    checkVectors(op);
    int64_t compared = 0;
    forEachInput(op, [&](ArrayRef<double> inputs) {
      // MLIR leaves the undefined (division by zero, logarithms of negatives)
      // alone.
      std::optional<double> actual = emitted(op, inputs);
      if (!actual)
        return;
      ++compared;
      EXPECT_TRUE(agree(*actual, op.evaluateScalar(inputs)))
          << testCase.text << "\n"
          << *actual << " != " << op.evaluateScalar(inputs) << " at "
          << inputs[0];
    });
    EXPECT_GT(compared, 1) << testCase.text;
  }
  for (RegisteredOperationName name : context().getRegisteredOperations())
    if (name.hasInterface<Elementwise>())
      EXPECT_TRUE(seen.count(name.stripDialect().str()))
          << name.getStringRef().str()
          << " is Elementwise and has no case in this test";
}

// A conversion to a narrow float rounds, and the scalar is held in f32 again.
TEST(GraphScalars, ConversionRounds) {
  OwningOpRef<ModuleOp> module =
      parse("func.func @f(%x: tensor<f32>) { %y = graph.convert %x : "
            "tensor<f32> -> tensor<bf16> return }");
  ASSERT_TRUE(module);
  auto op = cast<Elementwise>(
      module->lookupSymbol<func::FuncOp>("f").front().front());
  Block block;
  OpBuilder builder(&context());
  builder.setInsertionPointToStart(&block);
  Value x = builder.create<arith::ConstantOp>(
      op.getLoc(), FloatAttr::get(builder.getF32Type(), 1.0));
  Value y = op.emitScalar(builder, {x});
  EXPECT_TRUE(y.getType().isF32());
  auto widened = y.getDefiningOp<arith::ExtFOp>();
  ASSERT_TRUE(widened);
  auto narrowed = widened.getIn().getDefiningOp<arith::TruncFOp>();
  ASSERT_TRUE(narrowed);
  EXPECT_TRUE(narrowed.getType().isBF16());
  EXPECT_EQ(narrowed.getIn(), x);
}

} // namespace
