// The interpreter on inputs whose results a person can work out.
#include "compiler/interpreter/Philox.h"
#include "test/support/GraphTesting.h"
#include "gtest/gtest.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::testing;
using tessera::interpreter::interpret;
using tessera::interpreter::philox;

namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN();

llvm::Expected<Tensors> tryRun(const std::string &text, ArrayRef<Tensor> inputs,
                               bool roundToType = false) {
  OwningOpRef<ModuleOp> module = parse(text);
  if (!module)
    return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                   "does not parse");
  return interpret(*module, "f", inputs, {roundToType});
}

// The elements of the only result.
std::vector<double> run(const std::string &text, ArrayRef<Tensor> inputs = {},
                        bool roundToType = false) {
  llvm::Expected<Tensors> results = tryRun(text, inputs, roundToType);
  if (!results) {
    ADD_FAILURE() << text << "\n" << llvm::toString(results.takeError());
    return {};
  }
  return results->at(0).data;
}

std::string failure(const std::string &text, ArrayRef<Tensor> inputs = {}) {
  llvm::Expected<Tensors> results = tryRun(text, inputs);
  if (results) {
    ADD_FAILURE() << "expected an error of " << text;
    return "";
  }
  return llvm::toString(results.takeError());
}

using Values = std::vector<double>;

TEST(Interpreter, Constants) {
  EXPECT_EQ(
      run("func.func @f() -> tensor<3xbf16> { %y = graph.constant dense<[1.0, "
          "-2.5, 0.125]> : tensor<3xbf16> return %y : tensor<3xbf16> }"),
      (Values{1, -2.5, 0.125}));
  EXPECT_EQ(run("func.func @f() -> tensor<2xi8> { %y = graph.constant "
                "dense<[-1, 5]> : tensor<2xi8> return %y : tensor<2xi8> }"),
            (Values{-1, 5}));
  EXPECT_EQ(run("func.func @f() -> tensor<2xui8> { %y = graph.constant "
                "dense<[255, 5]> : tensor<2xui8> return %y : tensor<2xui8> }"),
            (Values{255, 5}));
  EXPECT_EQ(
      run("func.func @f() -> tensor<2xi1> { %y = graph.constant dense<[true, "
          "false]> : tensor<2xi1> return %y : tensor<2xi1> }"),
      (Values{1, 0}));
  EXPECT_EQ(run("func.func @f() -> tensor<2x2xf32> { %y = graph.constant "
                "dense<3.0> : tensor<2x2xf32> return %y : tensor<2x2xf32> }"),
            (Values{3, 3, 3, 3}));
}

TEST(Interpreter, Views) {
  Tensor x({2, 3}, {1, 2, 3, 4, 5, 6});
  auto view = [&](const std::string &op, const std::string &type) {
    return run("func.func @f(%x: tensor<2x3xf32>) -> tensor<" + type +
                   "> { %y = graph." + op + " : tensor<2x3xf32> -> tensor<" +
                   type + "> return %y : tensor<" + type + "> }",
               {x});
  };
  EXPECT_EQ(view("reshape %x", "3x2xf32"), x.data);
  EXPECT_EQ(view("transpose %x [1, 0]", "3x2xf32"), (Values{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(view("broadcast %x dims [0, 2]", "2x2x3xf32"),
            (Values{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(view("slice %x [1, 1]", "1x2xf32"), (Values{5, 6}));
  EXPECT_EQ(view("pad %x low [0, 1]", "2x5xf32"),
            (Values{0, 1, 2, 3, 0, 0, 4, 5, 6, 0}));
  EXPECT_EQ(view("reduce %x sum dims [0]", "3xf32"), (Values{5, 7, 9}));
  EXPECT_EQ(view("reduce %x max dims [1]", "2xf32"), (Values{3, 6}));
  EXPECT_EQ(view("reduce %x min dims [0, 1]", "f32"), (Values{1}));
  EXPECT_EQ(run("func.func @f() -> tensor<2x3xi32> { %y = graph.iota dim 1 : "
                "tensor<2x3xi32> return %y : tensor<2x3xi32> }"),
            (Values{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(run("func.func @f(%x: tensor<2x1xf32>, %y: tensor<2x2xf32>) -> "
                "tensor<2x3xf32> { %z = graph.concat %x, %y dim 1 : "
                "(tensor<2x1xf32>, tensor<2x2xf32>) -> tensor<2x3xf32> return "
                "%z : tensor<2x3xf32> }",
                {Tensor({2, 1}, {1, 2}), Tensor({2, 2}, {3, 4, 5, 6})}),
            (Values{1, 3, 4, 2, 5, 6}));
}

TEST(Interpreter, ReductionsKeepNaN) {
  Tensor x({2}, {1, kNan});
  for (const char *kind : {"sum", "max", "min"})
    EXPECT_TRUE(
        std::isnan(run(std::string("func.func @f(%x: tensor<2xf32>) -> "
                                   "tensor<f32> { %y = graph.reduce %x ") +
                           kind +
                           " dims [0] : tensor<2xf32> -> tensor<f32> return %y "
                           ": tensor<f32> }",
                       {x})[0]));
  for (const char *op : {"max", "min"})
    EXPECT_TRUE(std::isnan(
        run(std::string("func.func @f(%x: tensor<2xf32>, %y: tensor<2xf32>) -> "
                        "tensor<2xf32> { %z = graph.") +
                op + " %x, %y : tensor<2xf32> return %z : tensor<2xf32> }",
            {Tensor({2}, {1, kNan}), Tensor({2}, {kNan, 1})})[0]));
}

TEST(Interpreter, Dynamic) {
  Tensor x({2, 2}, {1, 2, 3, 4}), one({}, 1), u({2}, {8, 9});
  const std::string slice =
      "func.func @f(%x: tensor<2x2xf32>, %i: tensor<i32>) -> tensor<2xf32> { "
      "%y = graph.dynamic_slice %x[%i] : tensor<2x2xf32>, tensor<i32> -> "
      "tensor<2xf32> return %y : tensor<2xf32> }";
  EXPECT_EQ(run(slice, {x, one}), (Values{3, 4}));
  EXPECT_NE(failure(slice, {x, Tensor({}, 2.0)})
                .find("index 2 is outside the first dimension of 2"),
            std::string::npos);
  EXPECT_EQ(run("func.func @f(%x: tensor<2x2xf32>, %u: tensor<2xf32>, %i: "
                "tensor<i32>) -> tensor<2x2xf32> { %y = graph.dynamic_update "
                "%u into %x[%i] : tensor<2xf32>, tensor<i32> -> "
                "tensor<2x2xf32> return %y : tensor<2x2xf32> }",
                {x, u, one}),
            (Values{1, 2, 8, 9}));
}

TEST(Interpreter, Contractions) {
  auto einsum = [](const std::string &equation, const std::string &lhs,
                   const std::string &rhs, const std::string &out,
                   ArrayRef<Tensor> inputs) {
    return run("func.func @f(%x: tensor<" + lhs + ">, %y: tensor<" + rhs +
                   ">) -> tensor<" + out + "> { %z = graph.einsum \"" +
                   equation + "\" %x, %y : (tensor<" + lhs + ">, tensor<" +
                   rhs + ">) -> tensor<" + out + "> return %z : tensor<" + out +
                   "> }",
               inputs);
  };
  Tensor x({2, 2}, {1, 2, 3, 4}), y({2, 2}, {5, 6, 7, 8});
  EXPECT_EQ(einsum("ij,jk->ik", "2x2xf32", "2x2xf32", "2x2xf32", {x, y}),
            (Values{19, 22, 43, 50}));
  EXPECT_EQ(einsum("ij,jk->ki", "2x2xf32", "2x2xf32", "2x2xf32", {x, y}),
            (Values{19, 43, 22, 50}));
  EXPECT_EQ(einsum("bi,bi->b", "2x2xf32", "2x2xf32", "2xf32", {x, y}),
            (Values{17, 53}));
  EXPECT_EQ(einsum("ij,ji->", "2x2xf32", "2x2xf32", "f32", {x, y}),
            (Values{1 * 5 + 2 * 7 + 3 * 6 + 4 * 8}));
  EXPECT_EQ(einsum("ij,k->kij", "1x2xf32", "2xf32", "2x1x2xf32",
                   {Tensor({1, 2}, {1, 2}), Tensor({2}, {3, 4})}),
            (Values{3, 6, 4, 8}));
  // Nothing to sum gives zero.
  EXPECT_EQ(einsum("ij,jk->ik", "2x0xf32", "0x1xf32", "2x1xf32",
                   {Tensor({2, 0}), Tensor({0, 1})}),
            (Values{0, 0}));
}

TEST(Interpreter, GatherAndScatter) {
  Tensor table({3, 2}, {1, 2, 3, 4, 5, 6}), ids({3}, {2, 0, 2});
  const std::string embedding =
      "func.func @f(%x: tensor<3x2xf32>, %i: tensor<3xi32>) -> tensor<3x2xf32> "
      "{ %y = graph.embedding %x, %i : (tensor<3x2xf32>, tensor<3xi32>) -> "
      "tensor<3x2xf32> return %y : tensor<3x2xf32> }";
  EXPECT_EQ(run(embedding, {table, ids}), (Values{5, 6, 1, 2, 5, 6}));
  EXPECT_NE(failure(embedding, {table, Tensor({3}, {0, 3, 0})})
                .find("id 3 is outside a table of 3 rows"),
            std::string::npos);
  EXPECT_NE(failure(embedding, {table, Tensor({3}, {0, -1, 0})})
                .find("id -1 is outside"),
            std::string::npos);
  EXPECT_EQ(run("func.func @f(%x: tensor<3x2xf32>, %i: tensor<3xi32>, %u: "
                "tensor<3x2xf32>) -> tensor<3x2xf32> { %y = graph.scatter_add "
                "%u at %i onto %x : tensor<3x2xf32>, tensor<3xi32>, "
                "tensor<3x2xf32> return %y : tensor<3x2xf32> }",
                {table, ids, Tensor({3, 2}, {10, 20, 30, 40, 50, 60})}),
            (Values{31, 42, 3, 4, 65, 86}));
  // A negative id leaves its row nowhere.
  EXPECT_EQ(run("func.func @f(%x: tensor<3x2xf32>, %i: tensor<3xi32>, %u: "
                "tensor<3x2xf32>) -> tensor<3x2xf32> { %y = graph.scatter_rows "
                "%u at %i into %x : tensor<3x2xf32>, tensor<3xi32>, "
                "tensor<3x2xf32> return %y : tensor<3x2xf32> }",
                {table, Tensor({3}, {2, -1, 0}),
                 Tensor({3, 2}, {10, 20, 30, 40, 50, 60})}),
            (Values{50, 60, 3, 4, 10, 20}));
}

// Activations at 1 and -2, from their published definitions in 40-digit
// arithmetic.
TEST(Interpreter, Activations) {
  auto at = [](const std::string &op, double x) {
    return run("func.func @f(%x: tensor<f64>) -> tensor<f64> { %y = graph." +
                   op + " : tensor<f64> return %y : tensor<f64> }",
               {Tensor({}, x)})[0];
  };
  EXPECT_DOUBLE_EQ(at("gelu %x erf", 1), 0.84134474606854293);
  EXPECT_DOUBLE_EQ(at("gelu %x tanh", 1), 0.84119199060827665);
  EXPECT_DOUBLE_EQ(at("gelu %x quick", 1), 0.84579576593282124);
  EXPECT_NEAR(at("gelu %x erf", -2), -0.045500263896358417, 1e-16);
  EXPECT_NEAR(at("gelu %x tanh", -2), -0.04540230591222498, 1e-16);
  EXPECT_NEAR(at("gelu %x quick", -2), -0.064341376855791846, 1e-16);
  EXPECT_DOUBLE_EQ(at("sigmoid %x", 1), 0.7310585786300049);
  EXPECT_DOUBLE_EQ(at("silu %x", -2), -0.23840584404423512);
  EXPECT_DOUBLE_EQ(at("rsqrt %x", 4), 0.5);
  EXPECT_DOUBLE_EQ(at("erf %x", 1), 0.84270079294971489);
  EXPECT_EQ(at("relu %x", -2), 0);
  EXPECT_EQ(at("relu %x", 1), 1);
}

TEST(Interpreter, Integers) {
  auto binary = [](const std::string &op, double x, double y) {
    return run("func.func @f(%x: tensor<i8>, %y: tensor<i8>) -> tensor<i8> { "
               "%z = graph." +
                   op + " %x, %y : tensor<i8> return %z : tensor<i8> }",
               {Tensor({}, x), Tensor({}, y)})[0];
  };
  EXPECT_EQ(binary("add", 127, 1), -128);
  EXPECT_EQ(binary("mul", 100, 3), 44);
  EXPECT_EQ(binary("div", -7, 2), -3);
  EXPECT_EQ(binary("sub", -128, 1), 127);
  EXPECT_EQ(binary("and", 12, 10), 8);
}

//===--- structure --------------------------------------------------------===//

TEST(Interpreter, CallsLoopsAndClusters) {
  // Fibonacci, by a loop that calls a function and holds a cluster.
  const std::string text = R"(
    func.func private @advance(%a: tensor<i32>, %b: tensor<i32>) -> (tensor<i32>, tensor<i32>) attributes {graph.block} {
      %c = graph.cluster elementwise "add" (%a, %b) : (tensor<i32>, tensor<i32>) -> tensor<i32> {
      ^bb0(%x: tensor<i32>, %y: tensor<i32>):
        %z = graph.add %x, %y : tensor<i32>
        graph.yield %z : tensor<i32>
      }
      return %b, %c : tensor<i32>, tensor<i32>
    }
    func.func @f(%zero: tensor<i32>, %one: tensor<i32>) -> (tensor<i32>, tensor<i32>) {
      %r:3 = graph.loop 10 (%i, %a = %zero, %b = %one, %turns = %zero) : (tensor<i32>, tensor<i32>, tensor<i32>) {
        %n:2 = func.call @advance(%a, %b) : (tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>)
        %t = graph.add %turns, %i : tensor<i32>
        graph.yield %n#0, %n#1, %t : tensor<i32>, tensor<i32>, tensor<i32>
      }
      return %r#0, %r#2 : tensor<i32>, tensor<i32>
    })";
  llvm::Expected<Tensors> results =
      tryRun(text, {Tensor({}, 0.0), Tensor({}, 1.0)});
  ASSERT_TRUE(static_cast<bool>(results))
      << llvm::toString(results.takeError());
  EXPECT_EQ(results->at(0).data[0], 55);
  EXPECT_EQ(results->at(1).data[0], 45);
}

// A loop's body sees what is outside it as it was, in every turn.
TEST(Interpreter, LoopBodyRebindsItsValues) {
  EXPECT_EQ(run(R"(func.func @f(%x: tensor<3x2xf32>) -> tensor<2xf32> {
      %zero = graph.constant dense<0.0> : tensor<2xf32>
      %r = graph.loop 3 (%i, %acc = %zero) : (tensor<2xf32>) {
        %row = graph.dynamic_slice %x[%i] : tensor<3x2xf32>, tensor<i32> -> tensor<2xf32>
        %s = graph.add %acc, %row : tensor<2xf32>
        graph.yield %s : tensor<2xf32>
      }
      return %r : tensor<2xf32> })",
                {Tensor({3, 2}, {1, 2, 3, 4, 5, 6})}),
            (Values{9, 12}));
}

//===--- rounding ---------------------------------------------------------===//

TEST(Interpreter, RoundsToTypeOnlyWhenAsked) {
  auto third = [](const std::string &type, bool round) {
    return run("func.func @f(%x: tensor<" + type + ">, %y: tensor<" + type +
                   ">) -> tensor<" + type +
                   "> { %z = graph.div %x, %y : tensor<" + type +
                   "> return %z : tensor<" + type + "> }",
               {Tensor({}, 1.0), Tensor({}, 3.0)}, round)[0];
  };
  for (const char *type : {"f64", "f32", "bf16", "f16"})
    EXPECT_EQ(third(type, false), 1.0 / 3.0) << type;
  EXPECT_EQ(third("f64", true), 1.0 / 3.0);
  EXPECT_EQ(third("f32", true), static_cast<double>(1.0f / 3.0f));
  EXPECT_EQ(third("bf16", true), 0.333984375);
  EXPECT_EQ(third("f16", true), 0.333251953125);
  // Once, from double: 1 + 2^-8 + 2^-30 is above the middle of two bf16, but
  // would be on it after a detour through f32.
  EXPECT_EQ(
      run("func.func @f(%x: tensor<bf16>, %y: tensor<bf16>) -> tensor<bf16> { "
          "%z = graph.add %x, %y : tensor<bf16> return %z : tensor<bf16> }",
          {Tensor({}, 1.0), Tensor({}, 0x1p-8 + 0x1p-30)}, true)[0],
      1.0078125);
}

//===--- random numbers ---------------------------------------------------===//

// Known answers of the authors' distribution (Random123, kat_vectors).
TEST(Interpreter, PhiloxKnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                   {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

std::string random(const std::string &kind, const std::string &shape,
                   int64_t stream = 5) {
  return "func.func @f(%s: tensor<i64>, %t: tensor<i64>, %o: tensor<i32>) -> "
         "tensor<" +
         shape + "xf32> { %y = graph.random " + kind + " stream " +
         std::to_string(stream) +
         " seed %s step %t offset %o : tensor<i64>, tensor<i64>, tensor<i32> "
         "-> tensor<" +
         shape + "xf32> return %y : tensor<" + shape + "xf32> }";
}

Tensors at(double seed, double step, double offset) {
  return {Tensor({}, seed), Tensor({}, step), Tensor({}, offset)};
}

TEST(Interpreter, RandomElementsFollowTheContract) {
  // Seed 2^33 + 7: key = (7 xor 2 × 0x9E3779B9, stream). Element 6 is word 2 of
  // block 1.
  double seed = 0x1p33 + 7, step = 0x1p32 + 9;
  Values uniform = run(random("uniform", "8"), at(seed, step, 0));
  auto words = philox({1, 0, 9, 1}, {7 ^ (2 * 0x9E3779B9u), 5});
  for (int lane = 0; lane < 4; ++lane)
    EXPECT_EQ(uniform[4 + lane], (words[lane] >> 8) * 0x1p-24);
  Values normal = run(random("normal", "8"), at(seed, step, 0));
  double radius = std::sqrt(-2 * std::log(((words[2] >> 8) + 1.0) * 0x1p-24)),
         angle = 2 * M_PI * (words[3] >> 8) * 0x1p-24;
  EXPECT_DOUBLE_EQ(normal[6], radius * std::cos(angle));
  EXPECT_DOUBLE_EQ(normal[7], radius * std::sin(angle));
  // Streams and steps differ.
  EXPECT_NE(run(random("uniform", "8", 6), at(seed, step, 0)), uniform);
  EXPECT_NE(run(random("uniform", "8"), at(seed, step + 1, 0)), uniform);
}

// A microbatch sees its part of the global batch's numbers.
TEST(Interpreter, RandomOffsetCountsEntriesOfTheFirstDimension) {
  Values whole = run(random("normal", "6x3x5"), at(42, 1, 0));
  Values part = run(random("normal", "2x3x5"), at(42, 1, 4));
  EXPECT_EQ(part, Values(whole.begin() + 4 * 15, whole.end()));
  Values scalar =
      run("func.func @f(%s: tensor<i64>, %t: tensor<i64>, %o: tensor<i32>) -> "
          "tensor<f32> { %y = graph.random uniform stream 5 seed %s step %t "
          "offset %o : tensor<i64>, tensor<i64>, tensor<i32> -> tensor<f32> "
          "return %y : tensor<f32> }",
          at(42, 1, 3));
  EXPECT_EQ(scalar[0], run(random("uniform", "4"), at(42, 1, 0))[3]);
}

TEST(Interpreter, RandomMoments) {
  Values normal = run(random("normal", "100000"), at(1, 0, 0)),
         uniform = run(random("uniform", "100000"), at(1, 0, 0));
  double mean = 0, square = 0, fourth = 0, middle = 0;
  for (double x : normal) {
    mean += x / 1e5;
    square += x * x / 1e5;
    fourth += x * x * x * x / 1e5;
  }
  for (double x : uniform) {
    EXPECT_GE(x, 0);
    EXPECT_LT(x, 1);
    middle += x / 1e5;
  }
  // Five standard errors of each moment.
  EXPECT_NEAR(mean, 0, 5 / std::sqrt(1e5));
  EXPECT_NEAR(square, 1, 5 * std::sqrt(2 / 1e5));
  EXPECT_NEAR(fourth, 3, 5 * std::sqrt(96 / 1e5));
  EXPECT_NEAR(middle, 0.5, 5 * std::sqrt(1 / 12e5));
}

//===--- errors -----------------------------------------------------------===//

TEST(Interpreter, Errors) {
  const std::string identity = "func.func @f(%x: tensor<2xf32>) -> "
                               "tensor<2xf32> { return %x : tensor<2xf32> }";
  auto says = [](const std::string &message, const std::string &part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(failure("func.func @g() { return }"), "has no function 'f'");
  says(failure("func.func private @f()"), "the function has no body");
  says(failure(identity), "expects 1 inputs, got 0");
  says(failure(identity, {Tensor({3})}),
       "expects input 0 of shape [2], got [3]");
  says(failure(identity, {Tensor({2}, Values{1})}),
       "expects input 0 of shape [2], got [2] with 1 elements");
  says(failure("func.func @f(%x: i32) { return }", {Tensor({}, 0.0)}),
       "argument 0 is not a tensor of static shape");
  says(failure("func.func @f() { %x = graph.iota dim 0 : "
               "tensor<9999999999xi32> return }"),
       "too large for the interpreter");
  says(failure("func.func @f() { %x = graph.iota dim 0 : "
               "tensor<4294967296x4294967296xi32> return }"),
       "too large for the interpreter");
  says(failure("func.func @f() -> tensor<f32> { %x = arith.constant dense<1.0> "
               ": tensor<f32> return %x : tensor<f32> }"),
       "arith.constant at loc(");
  says(
      failure(
          "func.func private @g() -> tensor<f32> func.func @f() -> tensor<f32> "
          "{ %x = call @g() : () -> tensor<f32> return %x : tensor<f32> }"),
      "the function has no body");
}

// Word w of strip 1, lane 3 holds row 19, from column 8 w (4 w) on.
TEST(Interpreter, Dequantizes) {
  Tensor nibbles({2, 8, 16}), scales({2, 2, 16}, 1);
  nibbles.at({1, 5, 3}) = int32_t(0xf0123478);
  scales.at({1, 1, 3}) = 0.5;
  Values y = run("func.func @f(%q: tensor<2x8x16xi32>, %s: tensor<2x2x16xf16>) "
                 "-> tensor<20x40xf32> { %y = graph.dequantize %q, %s bits 4 "
                 "group 32 : tensor<2x8x16xi32>, tensor<2x2x16xf16> -> "
                 "tensor<20x40xf32> return %y : tensor<20x40xf32> }",
                 {nibbles, scales});
  ASSERT_EQ(y.size(), 800u);
  EXPECT_EQ(y[19 * 40 + 31], -8); // nothing but zeros: -8 × 1
  // Of 40 columns there is a word more behind column 39.
  EXPECT_EQ(y[19 * 40 + 32], -8 * 0.5);

  Tensor bytes({1, 8, 16});
  bytes.at({0, 2, 5}) = int32_t(0x80ff7f01);
  Values x = run("func.func @f(%q: tensor<1x8x16xi32>, %s: tensor<1x1x16xf16>) "
                 "-> tensor<32x16xf32> { %y = graph.dequantize %q, %s bits 8 "
                 "group 32 transposed : tensor<1x8x16xi32>, "
                 "tensor<1x1x16xf16> -> tensor<32x16xf32> return %y : "
                 "tensor<32x16xf32> }",
                 {bytes, Tensor({1, 1, 16}, 2)});
  ASSERT_EQ(x.size(), 512u);
  EXPECT_EQ(
      (Values{x[8 * 16 + 5], x[9 * 16 + 5], x[10 * 16 + 5], x[11 * 16 + 5]}),
      (Values{2, 254, -2, -256}));
}

// A group's zero points are behind its scales.
TEST(Interpreter, DequantizesWithZeroPoints) {
  Tensor nibbles({1, 8, 16}), scales({1, 4, 16}, 1);
  nibbles.at({0, 4, 3}) = int32_t(0xf0123478);
  scales.at({0, 2, 3}) = 0.5;
  scales.at({0, 3, 3}) = -7;
  Values y = run("func.func @f(%q: tensor<1x8x16xi32>, %s: tensor<1x4x16xf16>) "
                 "-> tensor<16x64xf32> { %y = graph.dequantize %q, %s bits 4 "
                 "group 32 zeros : tensor<1x8x16xi32>, tensor<1x4x16xf16> -> "
                 "tensor<16x64xf32> return %y : tensor<16x64xf32> }",
                 {nibbles, scales});
  ASSERT_EQ(y.size(), 1024u);
  EXPECT_EQ(y[3 * 64], -9); // of 0 with 8 added, and a zero point of 1
  EXPECT_EQ((Values{y[3 * 64 + 32], y[3 * 64 + 33], y[3 * 64 + 39]}),
            (Values{3.5, 3, 7}));
}

TEST(Interpreter, DequantizesRows) {
  Values y = run("func.func @f(%q: tensor<2x3xi8>, %s: tensor<2x1xf32>) -> "
                 "tensor<2x3xf32> { %y = graph.dequantize_rows %q, %s : "
                 "tensor<2x3xi8>, tensor<2x1xf32> -> tensor<2x3xf32> return %y "
                 ": tensor<2x3xf32> }",
                 {Tensor({2, 3}, Values{-127, 0, 5, 1, -2, 100}),
                  Tensor({2, 1}, Values{0.5, 2})});
  EXPECT_EQ(y, (Values{-63.5, 0, 2.5, 2, -4, 200}));
}

// What is drawn of which logits is tested with the Sampler; here that each row
// has its own operands, and that bits and changes are those of their tokens.
TEST(Interpreter, DrawsTokens) {
  Values drawn =
      run(R"(
func.func @f(%l: tensor<4x40xf32>, %a: tensor<4x2xi32>, %t: tensor<4x2xi32>,
                %c: tensor<4x2x4xf32>, %o: tensor<4x2xf32>, %n: tensor<4x4xi32>) -> tensor<4xi32> {
  %r = graph.sample %l allowed %a change %t by %c options %o limits %n
    : tensor<4x40xf32>, tensor<4x2xi32>, tensor<4x2xi32>, tensor<4x2x4xf32>, tensor<4x2xf32>, tensor<4x4xi32> -> tensor<4xi32>
  return %r : tensor<4xi32>
})",
          [] {
            Tensor logits({4, 40}), changes({4, 2, 4}, 1);
            for (int row = 0; row < 4; ++row)
              for (int i = 0; i < 40; ++i)
                logits.data[40 * row + i] = i;
            // Row 1: token 37 = 18 × 2 + 1 alone. Row 2: token 5
            // becomes (5 + 95) / 2 - 1. Row 3: none.
            Tensor allowed({4, 2}, Values{-1, -1, 0, 1 << 18, -1, -1, 0, 0});
            Tensor changed({4, 2}, Values{-1, 5, -1, 0, 5, -1, -1, -1});
            changes.data[16] = 95, changes.data[17] = 2;
            return Tensors{logits,  allowed,        changed,
                           changes, Tensor({4, 2}), Tensor({4, 4})};
          }());
  EXPECT_EQ(drawn, (Values{39, 37, 5, -2}));
}

// Every op of the dialect is executed by something.
TEST(Interpreter, CoversTheDialect) {
  // What has neither a formula nor a decomposition; each is in a test above.
  const std::set<std::string> own{
      "constant",        "iota",           "reshape",      "transpose",
      "broadcast",       "slice",          "pad",          "concat",
      "dynamic_slice",   "dynamic_update", "einsum",       "reduce",
      "embedding",       "scatter_add",    "scatter_rows", "dequantize",
      "dequantize_rows", "random",         "sample",       "loop",
      "cluster",         "yield"};
  for (RegisteredOperationName name : context().getRegisteredOperations())
    if (name.getDialectNamespace() == "graph" &&
        !name.hasInterface<Elementwise>() && !name.hasInterface<Decomposable>())
      EXPECT_TRUE(own.count(name.stripDialect().str()))
          << name.getStringRef().str()
          << " has no evaluator that is tested here";
}

} // namespace
