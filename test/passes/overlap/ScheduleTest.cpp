// Scheduling changes no bit of what devices compute together, and all of them
// start the same collectives in the same order.
#include "dialects/dist/DistOps.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "passes/fusion/Fusion.h"
#include "passes/overlap/BlockGraph.h"
#include "passes/overlap/Overlap.h"
#include "test/passes/sharding/RandomModels.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::testing;

namespace {

SmallVector<ModuleOp> modulesOf(const ShardedProgram &program) {
  SmallVector<ModuleOp> modules;
  for (const OwningOpRef<ModuleOp> &module : program.modules())
    modules.push_back(module.get());
  return modules;
}

bool runOn(ModuleOp module, void (*build)(OpPassManager &)) {
  PassManager pipeline(module->getName());
  build(pipeline);
  return succeeded(pipeline.run(module));
}

// What it starts, with loops, and over which axes.
std::string startsOf(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream out(text);
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (overlap::isStart(op))
      out << op->getName() << op->getAttr("axes") << "\n";
    else if (auto function = dyn_cast<func::FuncOp>(op))
      out << function.getName() << "\n";
  });
  return text;
}

int64_t countStarts(ModuleOp module) {
  int64_t count = 0;
  module.walk([&](Operation *op) { count += overlap::isStart(op); });
  return count;
}

Named join(Named a, const Named &b) {
  a.insert(b.begin(), b.end());
  return a;
}

void check(const ModelCase &drawn) {
  SCOPED_TRACE(drawn.text());
  OwningOpRef<ModuleOp> whole = compileToPrograms(drawn);
  ASSERT_TRUE(whole);
  OwningOpRef<ModuleOp> cut(whole->clone());
  ASSERT_TRUE(assignShardings(*cut, drawn.mesh(), drawn.zero));
  ShardedProgram sharded(*cut);
  ASSERT_TRUE(sharded.isBuilt());
  SmallVector<ModuleOp> modules = modulesOf(sharded);
  for (ModuleOp module : modules)
    ASSERT_TRUE(runOn(module, [](OpPassManager &pipeline) {
      buildFusionPipeline(pipeline);
      pipeline.addPass(createVerifyFused());
    }));

  Named state = randomState(*whole, 3);
  std::vector<std::pair<std::string, Named>> expected;
  int64_t vocabulary = drawn.config["vocab_size"];
  for (const char *program : {"train_step", "eval_step"}) {
    Named inputs = join(state, randomBatch(*whole, program, vocabulary, 4));
    expected.emplace_back(program, sharded.run(program, inputs));
  }
  int64_t before = countStarts(modules.front());
  ASSERT_TRUE(succeeded(orderCollectives(modules)));
  for (ModuleOp module : modules)
    ASSERT_TRUE(runOn(module, buildOverlapPipeline));
  EXPECT_LE(countStarts(modules.front()), before);
  for (ModuleOp module : modules)
    EXPECT_EQ(startsOf(module), startsOf(modules.front()));
  for (const auto &[program, results] : expected) {
    Named inputs = join(state, randomBatch(*whole, program, vocabulary, 4));
    Named again = sharded.run(program, inputs);
    ASSERT_EQ(again.size(), results.size());
    for (const auto &[name, value] : results)
      EXPECT_EQ(again.at(name).data, value.data) << program << " " << name;
  }
}

class Drawn : public ::testing::TestWithParam<uint64_t> {};
TEST_P(Drawn, ChangesNoBit) { check(ModelCase::draw(GetParam())); }
INSTANTIATE_TEST_SUITE_P(Models, Drawn, ::testing::Range<uint64_t>(0, 24));

MLIRContext &context() {
  static auto *made = [] {
    DialectRegistry registry;
    registry
        .insert<dist::DistDialect, graph::GraphDialect, func::FuncDialect>();
    auto *context = new MLIRContext(registry);
    context->loadAllAvailableDialects();
    return context;
  }();
  return *made;
}

// @f(%x, %y) on 2 devices, of tensors of `size`.
OwningOpRef<ModuleOp> parse(int64_t size, StringRef body) {
  std::string type = "tensor<" + std::to_string(size) + "xf32>";
  std::string text = "dist.mesh @mesh [#dist.axis<\"a\" = 2>, "
                     "#dist.axis<\"b\" = 2>]\n"
                     "func.func @f(%x: T, %y: T) -> (T, T) {\n" +
                     body.str() + "}\n";
  for (size_t at; (at = text.find('T')) != text.npos;)
    text.replace(at, 1, type);
  return parseSourceString<ModuleOp>(text, &context());
}

SmallVector<int64_t> numbersOf(ModuleOp module) {
  SmallVector<int64_t> numbers;
  module.walk([&](Operation *op) {
    if (auto start = op->getAttrOfType<IntegerAttr>(dist::kStartAttr))
      numbers.push_back(start.getInt());
  });
  return numbers;
}

constexpr StringLiteral kBoth =
    "%a = dist.all_reduce sum %x over @mesh [#dist.axis_ref<\"a\">] : T -> T\n"
    "%b = dist.all_reduce sum %y over @mesh [#dist.axis_ref<\"a\">] : T -> T\n"
    "return %a, %b : T, T\n";
// As if a kernel that makes the second one's part happened to read the first.
constexpr StringLiteral kChained =
    "%a = dist.all_reduce sum %x over @mesh [#dist.axis_ref<\"a\">] : T -> T\n"
    "%c = graph.cluster row \"c\"(%a, %y) : (T, T) -> T {\n"
    "^bb0(%l: T, %r: T):\n"
    "  %s = graph.add %l, %r : T\n"
    "  graph.yield %s : T\n"
    "}\n"
    "%b = dist.all_reduce sum %c over @mesh [#dist.axis_ref<\"a\">] : T -> T\n"
    "return %a, %b : T, T\n";
constexpr StringLiteral kOtherAxis =
    "%a = dist.all_reduce sum %x over @mesh [#dist.axis_ref<\"a\">] : T -> T\n"
    "%b = dist.all_reduce sum %y over @mesh [#dist.axis_ref<\"b\">] : T -> T\n"
    "return %a, %b : T, T\n";

TEST(Agreement, WhatOneProgramRequiresHoldsForAll) {
  OwningOpRef<ModuleOp> one = parse(8, kBoth), other = parse(9, kChained);
  ASSERT_TRUE(one && other);
  OwningOpRef<ModuleOp> alone(one->clone());
  ASSERT_TRUE(succeeded(orderCollectives({*alone})));
  EXPECT_EQ(numbersOf(*alone), (SmallVector<int64_t>{0, 0}));
  ASSERT_TRUE(succeeded(orderCollectives({*one, *other})));
  EXPECT_EQ(numbersOf(*one), (SmallVector<int64_t>{0, 1}));
  EXPECT_EQ(numbersOf(*other), (SmallVector<int64_t>{0, 1}));
}

TEST(Agreement, TheLargestShareDecidesWhatIsSmall) {
  // 1.2 MB are half of what is worthwhile between two processes.
  OwningOpRef<ModuleOp> one = parse(8, kBoth), other = parse(400000, kBoth);
  ASSERT_TRUE(succeeded(orderCollectives({*one, *other})));
  EXPECT_EQ(numbersOf(*one), (SmallVector<int64_t>{0, 1}));
}

TEST(Agreement, OtherCollectivesAreAnError) {
  OwningOpRef<ModuleOp> one = parse(8, kBoth), other = parse(8, kOtherAxis);
  std::string error;
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &diagnostic) {
    error += diagnostic.str();
    return success();
  });
  EXPECT_TRUE(failed(orderCollectives({*one, *other})));
  EXPECT_NE(
      error.find("all programs must have the same collectives in one order"),
      error.npos)
      << error;
}

} // namespace
