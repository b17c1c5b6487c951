// Contraction clusters, tiled, compiled and run on every CPU target, against
// sums in double precision over the einsum's labels.
#include "compiler/InitAll.h"
#include "dialects/graph/Einsum.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "passes/kernels/Passes.h"
#include "passes/kernels/Tiling.h"
#include "test/compiler/target/cpu/KernelRunner.h"
#include <array>
#include <cmath>
#include <functional>
#include <map>

namespace tessera::cpu::test {
namespace {

/// An einsum on dense operands; the sizes of its labels.
struct Case {
  std::string equation;
  std::map<char, int64_t> sizes;
  std::string type = "f32", resultType = "f32";

  int64_t count(const std::string &labels) const {
    int64_t product = 1;
    for (char label : labels)
      product *= sizes.at(label);
    return product;
  }
  std::string tensor(const std::string &labels,
                     const std::string &element) const {
    std::string text = "tensor<";
    for (char label : labels)
      text += std::to_string(sizes.at(label)) + "x";
    return text + element + ">";
  }
};

/// The kernel of one cluster, tiled for one target.
class Contraction {
public:
  Contraction(const std::string &function, const TileTarget &target)
      : context(registry()) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(function, &context);
    if (!module) {
      ADD_FAILURE() << "does not parse:\n" << function;
      return;
    }
    mlir::PassManager manager(&context);
    EmitKernelsOptions options;
    const std::string names[] = {target.name};
    options.targets = names;
    manager.addPass(createEmitKernels(options));
    if (failed(manager.run(*module))) {
      ADD_FAILURE() << "cannot be tiled:\n" << function;
      return;
    }
    module->walk([&](tile::LaunchOp launch) {
      name = launch.getKernel().str();
      blocks = launch.getBlocks()[0];
    });
    module->walk([&](mlir::ModuleOp nested) {
      if (!nested->hasAttr(kTargetAttr))
        return;
      library = loadKernels(nested, target, code);
    });
  }

  void run(std::vector<void *> buffers) {
    ASSERT_TRUE(library);
    KernelEntry entry = library->find(name);
    ASSERT_TRUE(entry);
    size_t bytes = code.scratchBytes.lookup(name) + 64;
    void *scratch = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    std::memset(scratch, 0xff, bytes);
    // In two ranges, the later first: blocks are independent.
    entry(buffers.data(), nullptr, blocks / 2, blocks, scratch);
    entry(buffers.data(), nullptr, 0, blocks / 2, scratch);
    std::free(scratch);
  }

private:
  static mlir::DialectRegistry registry() {
    mlir::DialectRegistry registry;
    registerAllDialects(registry);
    registerCpuTarget(registry);
    return registry;
  }
  mlir::MLIRContext context;
  std::string name;
  int64_t blocks = 0;
  CodeObject code;
  std::unique_ptr<LoadedCode> library;
};

/// Memory of one element type, filled with random values that it can hold.
struct Data {
  Data(size_t count, const std::string &type, uint32_t seed)
      : values(randomFloats(count, seed)) {
    if (type != "bf16")
      return;
    for (float &value : values) {
      halves.push_back(toBf16(value));
      value = fromBf16(halves.back());
    }
  }
  void *memory() {
    return halves.empty() ? static_cast<void *>(values.data()) : halves.data();
  }
  float at(size_t i) const {
    return halves.empty() ? values[i] : fromBf16(halves[i]);
  }
  std::vector<float> values;
  std::vector<uint16_t> halves;
};

int64_t place(const std::string &labels, const Case &c,
              const std::map<char, int64_t> &at) {
  int64_t result = 0;
  for (char label : labels)
    result = result * c.sizes.at(label) + at.at(label);
  return result;
}

void forEachIndex(const std::string &labels, const Case &c,
                  std::map<char, int64_t> &at,
                  const std::function<void()> &body) {
  if (labels.empty())
    return body();
  for (int64_t i = 0; i < c.sizes.at(labels[0]); ++i) {
    at[labels[0]] = i;
    forEachIndex(labels.substr(1), c, at, body);
  }
}

/// What the einsum gives, in double, and the sum of magnitudes for each
/// element.
std::vector<std::pair<double, double>> reference(const Case &c, const Data &x,
                                                 const Data &y) {
  auto equation = llvm::cantFail(graph::Einsum::parse(c.equation));
  std::vector<std::pair<double, double>> result(c.count(equation.out));
  std::map<char, int64_t> at;
  forEachIndex(equation.out, c, at, [&] {
    auto &[sum, magnitude] = result[place(equation.out, c, at)];
    forEachIndex(equation.summed(), c, at, [&] {
      double product = double(x.values[place(equation.lhs, c, at)]) *
                       y.values[place(equation.rhs, c, at)];
      sum += product;
      magnitude += std::abs(product);
    });
  });
  return result;
}

class ContractionTest : public TargetTest {
protected:
  /// What the kernel of the einsum makes of the operands.
  Data compute(const Case &c, Data &left, Data &right) {
    auto equation = llvm::cantFail(graph::Einsum::parse(c.equation));
    std::string x = c.tensor(equation.lhs, c.type),
                y = c.tensor(equation.rhs, c.type),
                z = c.tensor(equation.out, c.resultType);
    std::string body = "graph.einsum \"" + c.equation + "\" %a, %b : (" + x +
                       ", " + y + ") -> " + z;
    Contraction kernel("func.func @f(%x: " + x + ", %y: " + y + ") -> " + z +
                           " {\n%r = graph.cluster contraction \"einsum\" (%x, "
                           "%y) : (" +
                           x + ", " + y + ") -> " + z + " {\n^bb0(%a: " + x +
                           ", %b: " + y + "):\n%c = " + body +
                           "\ngraph.yield %c : " + z + "\n}\nreturn %r : " + z +
                           "\n}",
                       target);
    Data out(c.count(equation.out), c.resultType, 3);
    kernel.run({left.memory(), right.memory(), out.memory()});
    return out;
  }

  void check(const Case &c) {
    auto equation = llvm::cantFail(graph::Einsum::parse(c.equation));
    Data left(c.count(equation.lhs), c.type, 1),
        right(c.count(equation.rhs), c.type, 2);
    Data out = compute(c, left, right);
    auto expected = reference(c, left, right);
    int64_t k = c.count(equation.summed());
    for (size_t i = 0; i < expected.size(); ++i) {
      auto [sum, magnitude] = expected[i];
      double bound = 0x1p-23 * std::sqrt(double(k)) * magnitude + 1e-30;
      if (c.resultType == "bf16")
        bound += std::abs(sum) * 0x1p-8;
      ASSERT_NEAR(out.at(i), sum, bound)
          << c.equation << " " << c.type << " element " << i << " of "
          << expected.size() << " k " << k;
    }
  }
};

TEST_P(ContractionTest, EverySize) {
  for (int64_t m : {1, 7, 15, 33, 300})
    for (int64_t n : {1, 17, 64, 100})
      for (int64_t k : {1, 3, 37})
        if (m * n * k < 200000)
          check({"mk,kn->mn", {{'m', m}, {'n', n}, {'k', k}}});
}

TEST_P(ContractionTest, EveryOrderOfOperands) {
  for (std::string type : {"f32", "bf16"})
    for (std::string equation :
         {"mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn", "mk,kn->nm"})
      check({equation, {{'m', 45}, {'n', 70}, {'k', 67}}, type});
}

TEST_P(ContractionTest, Batches) {
  std::map<char, int64_t> sizes{{'b', 3},  {'t', 10}, {'h', 2},
                                {'d', 18}, {'s', 19}, {'n', 35}};
  for (std::string equation :
       {"bthd,bshd->bhts", "bhts,bshd->bthd", "bthd,hdn->btn", "btd,bts->ds",
        "bthd,bthn->hdn", "bd,hd->bhd", "bd,bd->b", "bd,bd->", "b,d->bd"})
    check({equation, sizes});
}

// Weights as they are read: ragged columns and sums, several chunks of one.
TEST_P(ContractionTest, FewRows) {
  for (std::string type : {"f32", "bf16"}) {
    for (auto [m, n, k] : {std::array{1, 2, 2},
                           {1, 33, 150},
                           {2, 100, 64},
                           {5, 17, 30},
                           {8, 16, 96}})
      check({"mk,nk->mn", {{'m', m}, {'n', n}, {'k', k}}, type});
    check({"mk,nk->mn", {{'m', 8}, {'n', 18}, {'k', 9002}}, type});
    check({"bmk,bnk->bmn", {{'b', 3}, {'m', 1}, {'n', 20}, {'k', 40}}, type});
  }
}

// A token's sums are the same bits beside others and alone.
TEST_P(ContractionTest, FewRowsHaveTheBitsOfMany) {
  for (std::string type : {"f32", "bf16"})
    for (int64_t k : {96, 150, 9002}) {
      Case many{"mk,nk->mn", {{'m', 40}, {'n', 50}, {'k', k}}, type};
      Data x(size_t(40 * k), type, 1), w(size_t(50 * k), type, 2);
      Data expected = compute(many, x, w);
      for (int64_t m : {1, 8, 12}) {
        Case few = many;
        few.sizes['m'] = m;
        Data out = compute(few, x, w); // its first rows
        for (int64_t i = 0; i < m * 50; ++i)
          ASSERT_EQ(out.values[i], expected.values[i])
              << type << " k " << k << " of " << m << " rows, element " << i;
      }
    }
}

TEST_P(ContractionTest, LongSums) {
  check({"mk,kn->mn", {{'m', 5}, {'n', 33}, {'k', 9001}}});
  check({"mk,nk->mn", {{'m', 30}, {'n', 33}, {'k', 9001}}, "bf16"});
  check({"km,kn->mn", {{'m', 260}, {'n', 34}, {'k', 5003}}, "bf16"});
}

TEST_P(ContractionTest, NarrowResults) {
  check({"mk,kn->mn", {{'m', 40}, {'n', 50}, {'k', 64}}, "bf16", "bf16"});
}

TEST_P(ContractionTest, ManyBlocks) {
  check({"mk,kn->mn", {{'m', 700}, {'n', 130}, {'k', 20}}});
  check({"mk,nk->mn", {{'m', 517}, {'n', 100}, {'k', 24}}, "bf16"});
}

// gelu(x w + bias) + residual, and the sum before it, as two results.
TEST_P(ContractionTest, EpilogueRunsOnTheSums) {
  int64_t m = 37, n = 50, k = 20;
  Contraction kernel(R"(
func.func @f(%x: tensor<37x20xf32>, %w: tensor<20x50xf32>, %bias: tensor<50xf32>, %r: tensor<37x50xf32>)
    -> (tensor<37x50xf32>, tensor<37x50xf32>) {
  %o:2 = graph.cluster contraction "linear" (%x, %w, %bias, %r)
      : (tensor<37x20xf32>, tensor<20x50xf32>, tensor<50xf32>, tensor<37x50xf32>)
      -> (tensor<37x50xf32>, tensor<37x50xf32>) {
  ^bb0(%a: tensor<37x20xf32>, %b: tensor<20x50xf32>, %c: tensor<50xf32>, %d: tensor<37x50xf32>):
    %0 = graph.einsum "mk,kn->mn" %a, %b : (tensor<37x20xf32>, tensor<20x50xf32>) -> tensor<37x50xf32>
    %1 = graph.broadcast %c dims [1] : tensor<50xf32> -> tensor<37x50xf32>
    %2 = graph.add %0, %1 : tensor<37x50xf32>
    %3 = graph.tanh %2 : tensor<37x50xf32>
    %4 = graph.add %3, %d : tensor<37x50xf32>
    graph.yield %2, %4 : tensor<37x50xf32>, tensor<37x50xf32>
  }
  return %o#0, %o#1 : tensor<37x50xf32>, tensor<37x50xf32>
})",
                     target);
  Case c{"mk,kn->mn", {{'m', m}, {'n', n}, {'k', k}}};
  Data x(m * k, "f32", 1), w(k * n, "f32", 2), bias(n, "f32", 3),
      residual(m * n, "f32", 4), sums(m * n, "f32", 5), out(m * n, "f32", 6);
  kernel.run({x.memory(), w.memory(), bias.memory(), residual.memory(),
              sums.memory(), out.memory()});
  auto expected = reference(c, x, w);
  for (int64_t i = 0; i < m * n; ++i) {
    double sum = expected[i].first + bias.values[i % n];
    ASSERT_NEAR(sums.at(i), sum, 1e-5);
    ASSERT_NEAR(out.at(i), std::tanh(sum) + residual.values[i], 1e-5);
  }
}

// Gradients are added to what the buffer holds; over several chunks of k too.
TEST_P(ContractionTest, AccumulatesInPlace) {
  Contraction kernel(R"(
func.func @f(%x: tensor<9000x20xbf16>, %w: tensor<9000x40xbf16>, %g: tensor<20x40xf32>) -> tensor<20x40xf32> {
  %o = graph.cluster contraction "grad" (%x, %w, %g) attributes {accumulates = array<i64: 2, 0>}
      : (tensor<9000x20xbf16>, tensor<9000x40xbf16>, tensor<20x40xf32>) -> tensor<20x40xf32> {
  ^bb0(%a: tensor<9000x20xbf16>, %b: tensor<9000x40xbf16>, %c: tensor<20x40xf32>):
    %0 = graph.einsum "km,kn->mn" %a, %b : (tensor<9000x20xbf16>, tensor<9000x40xbf16>) -> tensor<20x40xf32>
    %1 = graph.add %c, %0 : tensor<20x40xf32>
    graph.yield %1 : tensor<20x40xf32>
  }
  return %o : tensor<20x40xf32>
})",
                     target);
  Case c{"km,kn->mn", {{'m', 20}, {'n', 40}, {'k', 9000}}, "bf16"};
  Data x(180000, "bf16", 1), w(360000, "bf16", 2), g(800, "f32", 3);
  std::vector<float> before = g.values;
  kernel.run({x.memory(), w.memory(), g.memory()});
  auto expected = reference(c, x, w);
  for (int i = 0; i < 800; ++i)
    ASSERT_NEAR(g.values[i], before[i] + expected[i].first,
                1e-4 + 1e-6 * expected[i].second);
}

// Operands through views: a slice of a fused projection, turned; a repeated
// row; a bf16 tensor widened on the way.
TEST_P(ContractionTest, OperandsThroughViews) {
  Contraction kernel(R"(
func.func @f(%x: tensor<2x12x90xf32>, %w: tensor<40x30xbf16>) -> tensor<2x12x40xf32> {
  %o = graph.cluster contraction "views" (%x, %w)
      : (tensor<2x12x90xf32>, tensor<40x30xbf16>) -> tensor<2x12x40xf32> {
  ^bb0(%a: tensor<2x12x90xf32>, %b: tensor<40x30xbf16>):
    %0 = graph.slice %a [0, 0, 30] : tensor<2x12x90xf32> -> tensor<2x12x30xf32>
    %1 = graph.transpose %b [1, 0] : tensor<40x30xbf16> -> tensor<30x40xbf16>
    %2 = graph.convert %1 : tensor<30x40xbf16> -> tensor<30x40xf32>
    %3 = graph.einsum "btk,kn->btn" %0, %2 : (tensor<2x12x30xf32>, tensor<30x40xf32>) -> tensor<2x12x40xf32>
    graph.yield %3 : tensor<2x12x40xf32>
  }
  return %o : tensor<2x12x40xf32>
})",
                     target);
  Data x(2 * 12 * 90, "f32", 1), w(1200, "bf16", 2), out(960, "f32", 3);
  kernel.run({x.memory(), w.memory(), out.memory()});
  for (int row = 0; row < 24; ++row)
    for (int n = 0; n < 40; ++n) {
      double sum = 0;
      for (int k = 0; k < 30; ++k)
        sum += double(x.values[row * 90 + 30 + k]) * w.values[n * 30 + k];
      ASSERT_NEAR(out.values[row * 40 + n], sum, 1e-5);
    }
}

TEST_P(ContractionTest, RepeatedOperands) {
  Contraction kernel(R"(
func.func @f(%x: tensor<30xf32>, %w: tensor<30x40xf32>) -> tensor<17x40xf32> {
  %o = graph.cluster contraction "repeat" (%x, %w) : (tensor<30xf32>, tensor<30x40xf32>) -> tensor<17x40xf32> {
  ^bb0(%a: tensor<30xf32>, %b: tensor<30x40xf32>):
    %0 = graph.broadcast %a dims [1] : tensor<30xf32> -> tensor<17x30xf32>
    %1 = graph.einsum "mk,kn->mn" %0, %b : (tensor<17x30xf32>, tensor<30x40xf32>) -> tensor<17x40xf32>
    graph.yield %1 : tensor<17x40xf32>
  }
  return %o : tensor<17x40xf32>
})",
                     target);
  Data x(30, "f32", 1), w(1200, "f32", 2), out(680, "f32", 3);
  kernel.run({x.memory(), w.memory(), out.memory()});
  for (int m = 0; m < 17; ++m)
    for (int n = 0; n < 40; ++n) {
      double sum = 0;
      for (int k = 0; k < 30; ++k)
        sum += double(x.values[k]) * w.values[k * 40 + n];
      ASSERT_NEAR(out.values[m * 40 + n], sum, 1e-5);
    }
}

TESSERA_FOR_EACH_CPU_TARGET(ContractionTest);

} // namespace
} // namespace tessera::cpu::test
