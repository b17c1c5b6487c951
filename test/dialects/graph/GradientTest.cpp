// The gradient of every Differentiable op against central differences of the
// reference interpreter, in double precision and on random directions. Ops are
// enumerated from the dialect: one without a case fails.
#include "mlir/IR/Verifier.h"
#include "test/support/GraphTesting.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::testing;

namespace {

struct Case {
  // A function @f that holds the op and returns its results; $T is the float
  // type. Where its inputs are drawn from: floats in [low, high), integers in
  // [0, integers).
  std::string text;
  double low = -1.5, high = 1.5, integers = 3;
  // What integers are instead, where not all values mean something.
  std::vector<double> indices = {};
};

std::string unary(const std::string &op) {
  return "func.func @f(%x: tensor<2x5x$T>) -> tensor<2x5x$T> { %y = graph." +
         op + " : tensor<2x5x$T> return %y : tensor<2x5x$T> }";
}

std::string binary(const std::string &op) {
  return "func.func @f(%x: tensor<7x$T>, %y: tensor<7x$T>) -> tensor<7x$T> { "
         "%z = graph." +
         op + " %x, %y : tensor<7x$T> return %z : tensor<7x$T> }";
}

const char *kAttention = R"(
  func.func @f(%q: tensor<2x5x4x6x$T>, %k: tensor<2x5x2x6x$T>, %v: tensor<2x5x2x6x$T>) -> (tensor<2x5x4x6x$T>, tensor<2x4x5xf32>) {
    %y, %lse = graph.attention %q, %k, %v scale 0.7 {ATTRS} : tensor<2x5x4x6x$T>, tensor<2x5x2x6x$T>, tensor<2x5x2x6x$T> -> tensor<2x5x4x6x$T>, tensor<2x4x5xf32>
    return %y, %lse : tensor<2x5x4x6x$T>, tensor<2x4x5xf32> })";

const char *kSinksAttention = R"(
  func.func @f(%q: tensor<2x5x4x6x$T>, %k: tensor<2x5x2x6x$T>, %v: tensor<2x5x2x6x$T>, %z: tensor<4xf32>) -> (tensor<2x5x4x6x$T>, tensor<2x4x5xf32>) {
    %y, %lse = graph.attention %q, %k, %v sinks %z : tensor<4xf32> scale 0.7 {causal} : tensor<2x5x4x6x$T>, tensor<2x5x2x6x$T>, tensor<2x5x2x6x$T> -> tensor<2x5x4x6x$T>, tensor<2x4x5xf32>
    return %y, %lse : tensor<2x5x4x6x$T>, tensor<2x4x5xf32> })";

std::string attention(const std::string &attrs) {
  std::string text = kAttention;
  return text.replace(text.find("ATTRS"), 5, attrs);
}

std::string einsum(const std::string &equation, const std::string &lhs,
                   const std::string &rhs, const std::string &out) {
  return "func.func @f(%x: tensor<" + lhs + "$T>, %y: tensor<" + rhs +
         "$T>) -> tensor<" + out + "$T> { %z = graph.einsum \"" + equation +
         "\" %x, %y : (tensor<" + lhs + "$T>, tensor<" + rhs +
         "$T>) -> tensor<" + out + "$T> return %z : tensor<" + out + "$T> }";
}

// Groups are drawn: what their rows are, overlapping ones too, is clear from
// the decomposition.
std::string grouped(const std::string &op, const std::string &attrs,
                    const std::string &lhs, const std::string &rhs,
                    const std::string &groups, const std::string &out) {
  std::string in =
      "tensor<" + lhs + "$T>, tensor<" + rhs + "$T>, tensor<" + groups + "i32>";
  return "func.func @f(%x: tensor<" + lhs + "$T>, %y: tensor<" + rhs +
         "$T>, %g: tensor<" + groups + "i32>) -> tensor<" + out +
         "$T> { %z = graph.grouped_" + op + " %x, %y groups %g " + attrs +
         " : (" + in + ") -> tensor<" + out + "$T> return %z : tensor<" + out +
         "$T> }";
}

// `weights`: their tensor type, if there are any.
std::string moved(const std::string &op, const std::string &from,
                  const std::string &to, const std::string &weights) {
  std::string x = "tensor<" + from + "x$T>", y = "tensor<" + to + "x$T>",
              comma = weights.empty() ? "" : ", ";
  return "func.func @f(%x: " + x + ", %p: tensor<3x2xi32>" +
         (weights.empty() ? "" : ", %w: " + weights) + ") -> " + y +
         " { %y = graph." + op + " %x slots %p " +
         (weights.empty() ? "" : "weights %w ") + ": (" + x +
         ", tensor<3x2xi32>" + comma + weights + ") -> " + y +
         " return %y : " + y + " }";
}

// Of two sequences of 7 tokens; `more` are operands after the seventh, of
// `types`.
std::string stateSpaceScan(const std::string &names, const std::string &more,
                           const std::string &types, int64_t chunk) {
  const std::string x = "tensor<2x7x4x3x$T>", step = "tensor<2x7x4x$T>",
                    vectors = "tensor<2x7x2x5x$T>", heads = "tensor<4x$T>",
                    states = "tensor<2x4x3x5x$T>";
  std::string declared = more.empty() ? "" : ", " + more + ": " + types,
              added = types.empty() ? "" : ", " + types;
  return "func.func @f(%x: " + x + ", %d: " + step + ", %a: " + heads +
         ", %b: " + vectors + ", %c: " + vectors + ", %k: " + heads +
         ", %e: " + heads + declared + ") -> (" + x + ", " + states +
         ") { %y, %s = graph.state_space_scan %x step %d rate %a write %b read "
         "%c skip %k bias %e " +
         names + " chunk " + std::to_string(chunk) +
         " {least = 0.1 : f64, most = 1.5 : f64} : (" + x + ", " + step + ", " +
         heads + ", " + vectors + ", " + vectors + ", " + heads + ", " + heads +
         added + ") -> (" + x + ", " + states + ") return %y, %s : " + x +
         ", " + states + " }";
}

std::string view(const std::string &op, const std::string &from,
                 const std::string &to) {
  return "func.func @f(%x: tensor<" + from + "$T>) -> tensor<" + to +
         "$T> { %y = graph." + op + " : tensor<" + from + "$T> -> tensor<" +
         to + "$T> return %y : tensor<" + to + "$T> }";
}

// Of three tokens with two rows each; some go nowhere.
const std::vector<double> kPlaces{4, 0, -1, 2, 5, -1};

const std::multimap<std::string, Case> &cases() {
  static const std::multimap<std::string, Case> cases{
      {"neg", {unary("neg %x")}},
      {"abs", {unary("abs %x")}},
      {"exp", {unary("exp %x")}},
      {"log", {unary("log %x"), 0.3, 2}},
      {"log1p", {unary("log1p %x"), -0.7, 2}},
      {"sqrt", {unary("sqrt %x"), 0.3, 2}},
      {"rsqrt", {unary("rsqrt %x"), 0.3, 2}},
      {"tanh", {unary("tanh %x")}},
      {"erf", {unary("erf %x")}},
      {"sin", {unary("sin %x")}},
      {"cos", {unary("cos %x")}},
      {"sigmoid", {unary("sigmoid %x"), -4, 4}},
      {"relu", {unary("relu %x")}},
      {"silu", {unary("silu %x"), -4, 4}},
      {"gelu", {unary("gelu %x erf"), -3, 3}},
      {"gelu", {unary("gelu %x tanh"), -3, 3}},
      {"gelu", {unary("gelu %x quick"), -3, 3}},
      {"add", {binary("add")}},
      {"sub", {binary("sub")}},
      {"mul", {binary("mul")}},
      {"mul", {unary("mul %x, %x")}},
      {"div", {binary("div"), 0.5, 2}},
      {"max", {binary("max")}},
      {"min", {binary("min")}},
      {"pow", {binary("pow"), 0.3, 2}},
      {"and",
       {R"(func.func @f(%x: tensor<4xi1>, %y: tensor<4xi1>) -> tensor<4xi1> { %z = graph.and %x, %y : tensor<4xi1> return %z : tensor<4xi1> })",
        0, 1, 2}},
      {"or",
       {R"(func.func @f(%x: tensor<4xi1>, %y: tensor<4xi1>) -> tensor<4xi1> { %z = graph.or %x, %y : tensor<4xi1> return %z : tensor<4xi1> })",
        0, 1, 2}},
      {"compare",
       {R"(func.func @f(%x: tensor<4x$T>, %y: tensor<4x$T>) -> tensor<4xi1> { %z = graph.compare %x lt %y : tensor<4x$T> -> tensor<4xi1> return %z : tensor<4xi1> })"}},
      {"select",
       {R"(func.func @f(%c: tensor<9xi1>, %x: tensor<9x$T>, %y: tensor<9x$T>) -> tensor<9x$T> { %z = graph.select %c, %x, %y : tensor<9xi1>, tensor<9x$T> return %z : tensor<9x$T> })",
        -1, 1, 2}},
      {"convert",
       {R"(func.func @f(%x: tensor<4x$T>) -> tensor<4xf32> { %z = graph.convert %x : tensor<4x$T> -> tensor<4xf32> return %z : tensor<4xf32> })"}},
      {"convert",
       {R"(func.func @f(%x: tensor<4xi32>) -> tensor<4x$T> { %z = graph.convert %x : tensor<4xi32> -> tensor<4x$T> return %z : tensor<4x$T> })"}},
      {"constant",
       {R"(func.func @f() -> tensor<2x$T> { %z = graph.constant dense<1.5> : tensor<2x$T> return %z : tensor<2x$T> })"}},
      {"iota",
       {R"(func.func @f() -> tensor<2xi32> { %z = graph.iota dim 0 : tensor<2xi32> return %z : tensor<2xi32> })"}},
      {"reshape", {view("reshape %x", "2x6x", "3x4x")}},
      {"transpose", {view("transpose %x [2, 0, 1]", "2x3x4x", "4x2x3x")}},
      {"broadcast", {view("broadcast %x dims [1, 2]", "3x2x", "4x3x2x5x")}},
      {"broadcast", {view("broadcast %x dims []", "", "4x3x")}},
      {"slice", {view("slice %x [1, 0]", "4x5x", "2x3x")}},
      {"pad", {view("pad %x low [1, 0]", "2x3x", "4x5x")}},
      {"reduce", {view("reduce %x sum dims [0, 2]", "2x3x4x", "3x")}},
      {"reduce", {view("reduce %x max dims [1]", "3x5x", "3x")}},
      {"reduce", {view("reduce %x min dims [0, 1]", "3x5x", "")}},
      {"concat",
       {R"(func.func @f(%x: tensor<2x3x$T>, %y: tensor<2x1x$T>) -> tensor<2x4x$T> { %z = graph.concat %x, %y dim 1 : (tensor<2x3x$T>, tensor<2x1x$T>) -> tensor<2x4x$T> return %z : tensor<2x4x$T> })"}},
      {"dynamic_slice",
       {R"(func.func @f(%x: tensor<3x4x$T>, %i: tensor<i32>) -> tensor<4x$T> { %z = graph.dynamic_slice %x[%i] : tensor<3x4x$T>, tensor<i32> -> tensor<4x$T> return %z : tensor<4x$T> })"}},
      {"dynamic_update",
       {R"(func.func @f(%x: tensor<3x4x$T>, %u: tensor<4x$T>, %i: tensor<i32>) -> tensor<3x4x$T> { %z = graph.dynamic_update %u into %x[%i] : tensor<4x$T>, tensor<i32> -> tensor<3x4x$T> return %z : tensor<3x4x$T> })"}},
      {"einsum", {einsum("btk,kn->btn", "2x3x4x", "4x5x", "2x3x5x")}},
      {"einsum",
       {einsum("btkgd,bskd->bkgts", "2x3x2x2x4x", "2x3x2x4x", "2x2x2x3x3x")}},
      {"einsum", {einsum("ij,ji->", "3x4x", "4x3x", "")}},
      {"einsum", {einsum("i,j->ji", "3x", "4x", "4x3x")}},
      {"einsum", {einsum("ab,ab->ba", "3x4x", "3x4x", "4x3x")}},
      {"embedding",
       {R"(func.func @f(%x: tensor<3x4x$T>, %i: tensor<2x5xi32>) -> tensor<2x5x4x$T> { %z = graph.embedding %x, %i : (tensor<3x4x$T>, tensor<2x5xi32>) -> tensor<2x5x4x$T> return %z : tensor<2x5x4x$T> })"}},
      {"scatter_add",
       {R"(func.func @f(%x: tensor<3x4x$T>, %i: tensor<5xi32>, %u: tensor<5x4x$T>) -> tensor<3x4x$T> { %z = graph.scatter_add %u at %i onto %x : tensor<5x4x$T>, tensor<5xi32>, tensor<3x4x$T> return %z : tensor<3x4x$T> })"}},
      {"random",
       {R"(func.func @f(%s: tensor<i64>) -> tensor<4xf32> { %z = graph.random normal stream 1 seed %s step %s : tensor<i64>, tensor<i64> -> tensor<4xf32> return %z : tensor<4xf32> })"}},
      {"softmax", {unary("softmax %x"), -3, 3}},
      {"layer_norm",
       {R"(func.func @f(%x: tensor<2x3x5x$T>, %w: tensor<5x$T>, %b: tensor<5x$T>) -> tensor<2x3x5x$T> { %z = graph.layer_norm %x, %w, %b eps 1.0e-3 : tensor<2x3x5x$T>, tensor<5x$T>, tensor<5x$T> return %z : tensor<2x3x5x$T> })"}},
      {"layer_norm",
       {R"(func.func @f(%x: tensor<5x$T>, %w: tensor<5x$T>) -> tensor<5x$T> { %z = graph.layer_norm %x, %w eps 1.0e-3 : tensor<5x$T>, tensor<5x$T> return %z : tensor<5x$T> })"}},
      {"rms_norm",
       {R"(func.func @f(%x: tensor<2x3x5x$T>, %w: tensor<5x$T>) -> tensor<2x3x5x$T> { %z = graph.rms_norm %x, %w eps 1.0e-3 : tensor<2x3x5x$T>, tensor<5x$T> return %z : tensor<2x3x5x$T> })"}},
      {"rms_norm",
       {R"(func.func @f(%x: tensor<2x3x5x$T>, %w: tensor<5x$T>) -> tensor<2x3x5x$T> { %z = graph.rms_norm %x, %w eps 1.0e-3 {offset = 1.0 : f64} : tensor<2x3x5x$T>, tensor<5x$T> return %z : tensor<2x3x5x$T> })"}},
      {"rope",
       {R"(func.func @f(%x: tensor<2x3x2x4x$T>) -> tensor<2x3x2x4x$T> { %z = graph.rope %x {frequencies = array<f64: 1.0, 0.1>, scaling = 1.3 : f64} : tensor<2x3x2x4x$T> return %z : tensor<2x3x2x4x$T> })"}},
      {"rope",
       {R"(func.func @f(%x: tensor<2x3x2x4x$T>) -> tensor<2x3x2x4x$T> { %z = graph.rope %x {frequencies = array<f64: 1.0, 0.1>, inverse} : tensor<2x3x2x4x$T> return %z : tensor<2x3x2x4x$T> })"}},
      {"dropout",
       {R"(func.func @f(%x: tensor<4x5x$T>, %s: tensor<i64>) -> tensor<4x5x$T> { %z = graph.dropout %x rate 0.3 stream 4 seed %s step %s offset %s : tensor<4x5x$T>, tensor<i64>, tensor<i64>, tensor<i64> return %z : tensor<4x5x$T> })"}},
      {"attention", {attention("")}},
      {"attention", {attention("causal")}},
      {"attention", {attention("causal, window = 2 : i64")}},
      {"attention", {attention("window = 3 : i64")}},
      {"attention", {attention("causal, cap = 1.5 : f64")}},
      {"attention", {kSinksAttention}},
      {"grouped_matmul",
       {grouped("matmul", "", "9x4x", "3x4x5x", "4x", "9x5x"), -1.5, 1.5, 10}},
      {"grouped_matmul",
       {grouped("matmul", "{transposed}", "9x4x", "3x5x4x", "4x", "9x5x"), -1.5,
        1.5, 10}},
      {"grouped_matmul",
       {grouped("matmul", "", "3x6x4x", "3x4x5x", "3x", "3x6x5x"), -1.5, 1.5,
        7}},
      {"grouped_matmul",
       {grouped("matmul", "{transposed}", "3x6x4x", "3x5x4x", "3x", "3x6x5x"),
        -1.5, 1.5, 7}},
      {"grouped_outer",
       {grouped("outer", "", "9x4x", "9x5x", "4x", "3x4x5x"), -1.5, 1.5, 10}},
      {"grouped_outer",
       {grouped("outer", "", "3x6x4x", "3x6x5x", "3x", "3x4x5x"), -1.5, 1.5,
        7}},
      {"take_along_axis",
       {"func.func @f(%x: tensor<3x2x4x$T>, %i: tensor<3x2x3xi32>) -> "
        "tensor<3x2x3x$T> { %z = graph.take_along_axis %x at %i : "
        "(tensor<3x2x4x$T>, tensor<3x2x3xi32>) -> tensor<3x2x3x$T> return "
        "%z : tensor<3x2x3x$T> }",
        -1.5, 1.5, 5}},
      {"dispatch_rows",
       {moved("dispatch_rows", "3x4", "7x4", ""), -1.5, 1.5, 0, kPlaces}},
      {"dispatch_rows",
       {moved("dispatch_rows", "3x4", "7x4", "tensor<3x2x$T>"), -1.5, 1.5, 0,
        kPlaces}},
      {"combine_rows",
       {moved("combine_rows", "7x4", "3x4", ""), -1.5, 1.5, 0, kPlaces}},
      {"combine_rows",
       {moved("combine_rows", "7x4", "3x4", "tensor<3x2x$T>"), -1.5, 1.5, 0,
        kPlaces}},
      {"combine_rows",
       {moved("combine_rows", "7x4", "3x4", "tensor<3x2xf64>"), -1.5, 1.5, 0,
        kPlaces}},
      {"linear_cross_entropy",
       {R"(func.func @f(%x: tensor<6x4x$T>, %w: tensor<7x4x$T>, %t: tensor<6xi32>) -> tensor<f32> { %z = graph.linear_cross_entropy %x, %w, %t {ignore = 1 : i64} : tensor<6x4x$T>, tensor<7x4x$T>, tensor<6xi32> -> tensor<f32> return %z : tensor<f32> })"}},
      {"linear_cross_entropy",
       {R"(func.func @f(%x: tensor<6x4x$T>, %w: tensor<7x4x$T>, %t: tensor<6xi32>) -> tensor<6xf32> { %z = graph.linear_cross_entropy %x, %w, %t {ignore = 1 : i64} : tensor<6x4x$T>, tensor<7x4x$T>, tensor<6xi32> -> tensor<6xf32> return %z : tensor<6xf32> })"}},
      {"linear_cross_entropy",
       {R"(func.func @f(%x: tensor<6x4x$T>, %w: tensor<7x4x$T>, %t: tensor<6x3xi32>) -> tensor<6x3xf32> { %z = graph.linear_cross_entropy %x, %w, %t {ignore = 1 : i64} : tensor<6x4x$T>, tensor<7x4x$T>, tensor<6x3xi32> -> tensor<6x3xf32> return %z : tensor<6x3xf32> })"}},
      {"linear_cross_entropy",
       {R"(func.func @f(%x: tensor<6x4x$T>, %w: tensor<7x4x$T>, %t: tensor<6x3xi32>) -> tensor<f32> { %z = graph.linear_cross_entropy %x, %w, %t {cap = 0.75 : f64, ignore = 1 : i64} : tensor<6x4x$T>, tensor<7x4x$T>, tensor<6x3xi32> -> tensor<f32> return %z : tensor<f32> })"}},
      {"linear_cross_entropy",
       {R"(func.func @f(%x: tensor<6x4x$T>, %w: tensor<7x4x$T>, %t: tensor<6xi32>) -> tensor<f32> { %z = graph.linear_cross_entropy %x, %w, %t {cap = 0.75 : f64, ignore = 1 : i64} : tensor<6x4x$T>, tensor<7x4x$T>, tensor<6xi32> -> tensor<f32> return %z : tensor<f32> })"}},
      {"segment_sum", {view("segment_sum %x", "2x3x5x", "2x3x5x5x")}},
      {"state_space_scan", {stateSpaceScan("", "", "", 7), -1.5, -0.05}},
      {"state_space_scan", {stateSpaceScan("", "", "", 3), -1.5, -0.05}},
      {"state_space_scan",
       {stateSpaceScan("first %f", "%f", "tensor<2x7xi32>", 2), -1.5, -0.05}},
      {"state_space_scan",
       {stateSpaceScan("counts %n", "%n", "tensor<2xi32>", 3), -1.5, -0.05, 7}},
      {"state_space_scan",
       {stateSpaceScan("from %i", "%i", "tensor<2x4x3x5x$T>", 3), -1.5, -0.05}},
      {"send_rows",
       {"func.func @f(%x: tensor<6x4x$T>, %p: tensor<3x2xi32>, %g: "
        "tensor<3xi32>) -> (tensor<6x4x$T>, tensor<3xi32>) { %z:2 = "
        "graph.send_rows %x slots %p groups %g : (tensor<6x4x$T>, "
        "tensor<3x2xi32>, tensor<3xi32>) -> (tensor<6x4x$T>, "
        "tensor<3xi32>) return %z#0, %z#1 : tensor<6x4x$T>, tensor<3xi32> "
        "}",
        -1.5, 1.5, 5}},
      {"return_rows",
       {"func.func @f(%x: tensor<6x4x$T>, %p: tensor<3x2xi32>, %g: "
        "tensor<3xi32>) -> tensor<6x4x$T> { %z = graph.return_rows %x "
        "slots %p groups %g : (tensor<6x4x$T>, tensor<3x2xi32>, "
        "tensor<3xi32>) -> tensor<6x4x$T> return %z : tensor<6x4x$T> }",
        -1.5, 1.5, 5}},
  };
  return cases;
}

// Ops that autodiff itself makes and those over a cache, which have no gradient
// (README).
const std::set<std::string> kLast{"gelu_grad", "attention_grad",
                                  "linear_cross_entropy_grad", "scatter_rows",
                                  "paged_attention"};

Operation *theOp(func::FuncOp function) { return &function.front().front(); }

// @g(inputs of @f, cotangents of its results) → gradients of the op's operands,
// in operand order; `given` tells which results have a cotangent, and `present`
// receives which operands have a gradient.
void buildGradient(ModuleOp module, ArrayRef<bool> given,
                   SmallVector<bool> &present) {
  auto f = module.lookupSymbol<func::FuncOp>("f");
  auto g = cast<func::FuncOp>(f->clone());
  g.setName("g");
  module.push_back(g);
  Operation *op = theOp(g);
  Block &body = g.front();
  SmallVector<Value> cotangents;
  for (auto [i, result] : llvm::enumerate(op->getResults())) {
    Value argument = body.addArgument(result.getType(), g.getLoc());
    cotangents.push_back(given[i] ? argument : Value());
  }
  Operation *end = body.getTerminator();
  OpBuilder builder(end);
  SmallVector<Value> gradients =
      cast<Differentiable>(op).buildVjp(builder, cotangents);
  ASSERT_EQ(gradients.size(), op->getNumOperands());
  SmallVector<Value> results;
  for (auto [gradient, operand] :
       llvm::zip_equal(gradients, op->getOperands())) {
    present.push_back(static_cast<bool>(gradient));
    if (!gradient)
      continue;
    EXPECT_EQ(gradient.getType(), operand.getType())
        << "a gradient has its operand's type";
    results.push_back(gradient);
  }
  end->setOperands(results);
  g.setType(builder.getFunctionType(body.getArgumentTypes(),
                                    ValueRange(results).getTypes()));
}

Tensors run(ModuleOp module, StringRef name, ArrayRef<Tensor> inputs) {
  llvm::Expected<Tensors> results =
      tessera::interpreter::interpret(module, name, inputs);
  if (!results) {
    ADD_FAILURE() << llvm::toString(results.takeError());
    return {};
  }
  return *results;
}

double dot(const Tensor &a, const Tensor &b) {
  double sum = 0;
  for (int64_t i = 0; i < a.size(); ++i)
    sum += a.data[i] * b.data[i];
  return sum;
}

// Σ over results with a cotangent of <cotangent, result> at inputs + h ×
// direction of input `which`.
double weighted(ModuleOp module, Tensors inputs, size_t which,
                const Tensor &direction, double h, const Tensors &cotangents,
                ArrayRef<bool> given) {
  for (int64_t i = 0; i < direction.size(); ++i)
    inputs[which].data[i] += h * direction.data[i];
  Tensors results = run(module, "f", inputs);
  double sum = 0;
  for (size_t i = 0; i < results.size(); ++i)
    if (given[i])
      sum += dot(cotangents[i], results[i]);
  return sum;
}

// Central differences err by h² f''' and by the rounding of f over h.
void checkOne(const std::string &name, const Case &testCase,
              ArrayRef<bool> given) {
  OwningOpRef<ModuleOp> module = parse(withType(testCase.text, "f64"));
  ASSERT_TRUE(module) << testCase.text;
  auto f = module->lookupSymbol<func::FuncOp>("f");
  SmallVector<bool> present;
  buildGradient(*module, given, present);
  ASSERT_TRUE(succeeded(verify(*module))) << testCase.text;

  std::mt19937_64 engine(7);
  Tensors inputs, cotangents;
  for (Type type : f.getArgumentTypes()) {
    bool isInteger =
        isa<IntegerType>(cast<RankedTensorType>(type).getElementType());
    inputs.push_back(
        randomTensor(cast<RankedTensorType>(type), isInteger ? 0 : testCase.low,
                     isInteger ? testCase.integers : testCase.high, engine));
    if (isInteger && !testCase.indices.empty())
      inputs.back().data = testCase.indices;
  }
  for (Type type : f.getResultTypes())
    cotangents.push_back(
        randomTensor(cast<RankedTensorType>(type), -1, 1, engine));
  Tensors both = inputs;
  both.insert(both.end(), cotangents.begin(), cotangents.end());
  Tensors gradients = run(*module, "g", both);

  // Gradients are by operand, differences by argument (one may be several
  // operands).
  Operation *op = theOp(f);
  for (size_t argument = 0; argument < inputs.size(); ++argument) {
    if (isa<IntegerType>(tensorType(f.getArgument(argument)).getElementType()))
      continue;
    for (int trial = 0; trial < 3; ++trial) {
      Tensor direction =
          randomTensor(tensorType(f.getArgument(argument)), -1, 1, engine);
      double analytic = 0;
      size_t next = 0;
      for (size_t operand = 0; operand < present.size(); ++operand) {
        if (!present[operand])
          continue;
        if (op->getOperand(operand) == f.getArgument(argument))
          analytic += dot(gradients[next], direction);
        ++next;
      }
      constexpr double h = 1e-5;
      double numeric = (weighted(*module, inputs, argument, direction, h,
                                 cotangents, given) -
                        weighted(*module, inputs, argument, direction, -h,
                                 cotangents, given)) /
                       (2 * h);
      EXPECT_NEAR(analytic, numeric, 1e-7 * (1 + std::abs(numeric)))
          << "graph." << name << ", argument " << argument << "\n"
          << testCase.text;
    }
  }
}

// Every subset of the results, but none, has a cotangent.
void checkCase(const std::string &name, const Case &testCase) {
  OwningOpRef<ModuleOp> module = parse(withType(testCase.text, "f64"));
  ASSERT_TRUE(module) << testCase.text;
  Operation *op = theOp(module->lookupSymbol<func::FuncOp>("f"));
  ASSERT_EQ(op->getName().getStringRef(), "graph." + name);
  for (unsigned subset = 1; subset < 1u << op->getNumResults(); ++subset) {
    SmallVector<bool> given;
    for (unsigned i = 0; i < op->getNumResults(); ++i)
      given.push_back(subset >> i & 1);
    checkOne(name, testCase, given);
  }
}

TEST(GraphGradients, EveryOpMatchesCentralDifferences) {
  size_t checked = 0;
  for (RegisteredOperationName name : context().getRegisteredOperations()) {
    if (name.getDialectNamespace() != "graph" ||
        !name.hasInterface<Differentiable>())
      continue;
    std::string mnemonic = name.stripDialect().str();
    if (kLast.count(mnemonic))
      continue;
    auto [begin, end] = cases().equal_range(mnemonic);
    EXPECT_NE(begin, end) << "graph." << mnemonic
                          << " is Differentiable and has no case in this test";
    for (auto it = begin; it != end; ++it, ++checked)
      checkCase(mnemonic, it->second);
  }
  EXPECT_EQ(checked, cases().size())
      << "a case is of an op that is not registered";
}

// Nothing comes of nothing, and in no element type does a gradient fail to
// verify.
TEST(GraphGradients, VerifyInEveryFloatType) {
  for (const auto &[name, testCase] : cases())
    for (const char *type : {"f64", "f32", "bf16", "f16"}) {
      OwningOpRef<ModuleOp> module = parse(withType(testCase.text, type));
      ASSERT_TRUE(module) << testCase.text;
      Operation *op = theOp(module->lookupSymbol<func::FuncOp>("f"));
      SmallVector<bool> present;
      buildGradient(*module, SmallVector<bool>(op->getNumResults(), true),
                    present);
      EXPECT_TRUE(succeeded(verify(*module)))
          << "graph." << name << " in " << type;

      OpBuilder builder(op->getNextNode());
      SmallVector<Value> nothing(op->getNumResults());
      for (Value gradient : cast<Differentiable>(op).buildVjp(builder, nothing))
        EXPECT_FALSE(gradient) << "graph." << name;
    }
}

TEST(GraphGradients, WiderContractionGivesGradientsOfItsOperandsType) {
  OwningOpRef<ModuleOp> module = parse(
      R"(func.func @f(%x: tensor<2x3xbf16>, %y: tensor<3x4xbf16>) -> tensor<2x4xf32> {
    %z = graph.einsum "ij,jk->ik" %x, %y : (tensor<2x3xbf16>, tensor<3x4xbf16>) -> tensor<2x4xf32> return %z : tensor<2x4xf32> })");
  ASSERT_TRUE(module);
  SmallVector<bool> present;
  buildGradient(*module, {true}, present);
  EXPECT_TRUE(succeeded(verify(*module)));
}

TEST(GraphGradients, EqualMaximaShareTheGradient) {
  OwningOpRef<ModuleOp> module =
      parse(R"(func.func @f(%x: tensor<2x4xf64>) -> tensor<2xf64> {
    %z = graph.reduce %x max dims [1] : tensor<2x4xf64> -> tensor<2xf64> return %z : tensor<2xf64> })");
  ASSERT_TRUE(module);
  SmallVector<bool> present;
  buildGradient(*module, {true}, present);
  Tensors gradients = run(*module, "g",
                          {
                              Tensor({2, 4}, {1, 5, 5, 2, 3, 3, 3, 3}),
                              Tensor({2}, 0.0),
                          });
  EXPECT_EQ(gradients.at(0).data, std::vector<double>(8, 0.0));
  gradients =
      run(*module, "g",
          {Tensor({2, 4}, {1, 5, 5, 2, 3, 3, 3, 3}), Tensor({2}, {6.0, 8.0})});
  EXPECT_EQ(gradients.at(0).data,
            (std::vector<double>{0, 3, 3, 0, 2, 2, 2, 2}));
}

// At the kinks: zero for abs and relu, all to the left side for max and min.
TEST(GraphGradients, Kinks) {
  auto gradientAtTie = [](const std::string &text, Tensors inputs) {
    OwningOpRef<ModuleOp> module = parse(withType(text, "f64"));
    SmallVector<bool> present;
    buildGradient(*module, {true}, present);
    return run(*module, "g", inputs);
  };
  Tensor zeros({2, 5}, 0.0), ones({2, 5}, 1.0);
  EXPECT_EQ(gradientAtTie(unary("abs %x"), {zeros, ones}).at(0).data,
            zeros.data);
  EXPECT_EQ(gradientAtTie(unary("relu %x"), {zeros, ones}).at(0).data,
            zeros.data);
  Tensor z7({7}, 0.0), o7({7}, 1.0);
  for (const char *op : {"max", "min"}) {
    Tensors gradients = gradientAtTie(binary(op), {z7, z7, o7});
    EXPECT_EQ(gradients.at(0).data, o7.data) << op;
    EXPECT_EQ(gradients.at(1).data, z7.data) << op;
  }
}

} // namespace
