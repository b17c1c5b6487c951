// Every op under every cut that its rule allows: what devices compute of their
// shares is what one computes of the whole.
#include "dialects/dist/DistOps.h"
#include "mlir/IR/Verifier.h"
#include "passes/sharding/Placement.h"
#include "passes/sharding/Rule.h"
#include "passes/sharding/Shardings.h"
#include "test/passes/sharding/OpCases.h"
#include "test/passes/sharding/ShardedRun.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using namespace tessera::testing;
using graph::tensorType;

namespace {

using Axes = SmallVector<unsigned, 2>;

/// Which axes cut each loopDim of a rule, and along which operands are parts.
struct Cut {
  SmallVector<int64_t, 2> mesh; ///< sizes of axes "a" and "b"
  std::vector<Axes> loops;
  Axes parts = {};
  SmallVector<unsigned, 2> linear = {}; ///< the operands that are
};

std::string text(const Cut &cut) {
  std::string result = "mesh";
  for (int64_t size : cut.mesh)
    result += " " + std::to_string(size);
  for (auto [loopDim, axes] : llvm::enumerate(cut.loops))
    for (unsigned axis : axes)
      result += ", loopDim " + std::to_string(loopDim) + " along " + "ab"[axis];
  for (unsigned axis : cut.parts)
    result += std::string(", parts along ") + "ab"[axis];
  return result;
}

/// One case, its op and rule.
struct Parsed {
  explicit Parsed(const OpCase &from) : module(parse(from.text)) {
    if (!module)
      return;
    function = module->lookupSymbol<func::FuncOp>("f");
    Builder builder(&context());
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      function.setArgAttr(i, graph::kInputAttr,
                          builder.getStringAttr("in" + std::to_string(i)));
    op = function.front().getTerminator()->getPrevNode();
  }
  OwningOpRef<ModuleOp> module;
  func::FuncOp function;
  Operation *op = nullptr;
};

//===--- the same function, cut -------------------------------------------===//

/// Gives the op of @f the placements of `cut`; its results are made whole.
class Placer {
public:
  Placer(Parsed &parsed, const OpRule &rule, const Cut &cut)
      : module(*parsed.module), function(parsed.function), op(parsed.op),
        rule(rule), cut(cut), builder(module.getBodyRegion()),
        mesh(createMesh()) {}

  /// False where an argument would have to be a part of a sum.
  bool place() {
    for (auto [i, operand] : llvm::enumerate(op->getOpOperands())) {
      Placement wanted = assemble(rule.operands[i]);
      if (llvm::is_contained(cut.linear, i))
        wanted.partial = cut.parts;
      if (rule.addend == i)
        llvm::append_range(wanted.partial, summedOutside(rule.operands[i]));
      if (!placeOperand(operand, wanted))
        return false;
    }
    SmallVector<Attribute> attrs;
    builder.setInsertionPointAfter(op);
    for (auto [i, result] : llvm::enumerate(op->getResults())) {
      Placement made = assemble(rule.results[i]);
      made.partial = summedOutside(rule.results[i]);
      llvm::append_range(made.partial, cut.parts);
      attrs.push_back(attrOf(made));
      auto whole = builder.create<dist::ReshardOp>(
          op->getLoc(), result.getType(), result,
          attrOf(Placement::whole(tensorType(result))));
      result.replaceAllUsesExcept(whole, whole);
    }
    op->setAttr(dist::kShardingsAttr, builder.getArrayAttr(attrs));
    return true;
  }

private:
  Mesh createMesh() {
    builder.setInsertionPointToStart(module.getBody());
    SmallVector<Attribute> axes;
    for (auto [i, size] : llvm::enumerate(cut.mesh))
      axes.push_back(
          dist::AxisAttr::get(&context(), std::string(1, "ab"[i]), size));
    return Mesh(builder.create<dist::MeshOp>(module.getLoc(), "mesh",
                                             builder.getArrayAttr(axes)));
  }

  dist::ShardingAttr attrOf(Placement placement) {
    placement.normalize(mesh);
    return placement.toAttr(&context(), mesh);
  }

  Placement assemble(const OpRule::Dims &dims) const {
    Placement placement;
    for (const OpRule::Dim &names : dims) {
      DimPlacement &dim = placement.dims.emplace_back();
      for (unsigned name : names)
        dim.push_back({rule.loops[name].size, cut.loops[name]});
    }
    return placement;
  }

  Axes summedOutside(const OpRule::Dims &dims) const {
    Axes axes;
    for (auto [name, loopDim] : llvm::enumerate(rule.loops)) {
      bool inside = llvm::any_of(dims, [&](const OpRule::Dim &dim) {
        return llvm::is_contained(dim, name);
      });
      if (loopDim.kind == LoopKind::sum && !inside)
        llvm::append_range(axes, cut.loops[name]);
    }
    return axes;
  }

  bool placeOperand(OpOperand &operand, const Placement &wanted) {
    Value value = operand.get();
    if (isZero(value)) {
      value.getDefiningOp()->setAttr(dist::kShardingsAttr,
                                     builder.getArrayAttr({attrOf(wanted)}));
      return true;
    }
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || (!wanted.partial.empty() && cut.parts.empty()))
      return argument && wanted.partial.empty();
    function.setArgAttr(argument.getArgNumber(), dist::kShardingAttr,
                        attrOf(wanted.withoutPartial()));
    if (!wanted.partial.empty())
      addUp(operand, argument, wanted);
    return true;
  }

  // The argument becomes a stack of tensors, one or more a device, and their
  // sum the operand.
  void addUp(OpOperand &operand, BlockArgument argument,
             const Placement &wanted) {
    auto type = tensorType(argument);
    SmallVector<int64_t> shape{mesh.size(wanted.partial) + 1};
    llvm::append_range(shape, type.getShape());
    argument.setType(type.clone(shape));
    function.setType(builder.getFunctionType(
        function.front().getArgumentTypes(), function.getResultTypes()));
    Placement stack = wanted.withoutPartial();
    stack.dims.insert(stack.dims.begin(),
                      DimPlacement{Factor{shape[0], wanted.partial}});
    function.setArgAttr(argument.getArgNumber(), dist::kShardingAttr,
                        attrOf(stack));
    builder.setInsertionPoint(op);
    auto sum = builder.create<graph::ReduceOp>(
        op->getLoc(), argument, graph::ReduceKind::sum, ArrayRef<int64_t>{0});
    sum->setAttr(dist::kShardingsAttr, builder.getArrayAttr({attrOf(wanted)}));
    operand.set(sum);
  }

  ModuleOp module;
  func::FuncOp function;
  Operation *op;
  const OpRule &rule;
  const Cut &cut;
  OpBuilder builder;
  Mesh mesh;
};

//===--- both ways --------------------------------------------------------===//

Named drawInputs(func::FuncOp function, const OpCase &from) {
  std::mt19937_64 engine(5);
  Named inputs;
  size_t next = 0;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    auto type = tensorType(function.getArgument(i));
    bool isInteger = isa<IntegerType>(type.getElementType());
    bool isFlag = type.getElementType().isInteger(1);
    Tensor &input = inputs["in" + std::to_string(i)];
    input = randomTensor(type, isInteger ? 0 : from.low,
                         isFlag      ? 2
                         : isInteger ? from.integers
                                     : from.high + 1,
                         engine);
    for (double &value : input.data)
      value = std::floor(value);
    if (isInteger && next < from.indices.size())
      input.data = from.indices[next++];
  }
  return inputs;
}

// Whether the op's own meaning survives `cut`; whether it was tried.
bool check(const OpCase &from, const Cut &cut) {
  SCOPED_TRACE(from.text + "\n" + text(cut));
  Parsed parsed(from);
  OpRule rule = *ruleOf(parsed.op);
  if (!Placer(parsed, rule, cut).place())
    return false;
  if (failed(verify(*parsed.module))) {
    parsed.module->dump();
    ADD_FAILURE() << "the cut module does not verify";
    return false;
  }
  ShardedProgram sharded(*parsed.module);
  if (!sharded.isBuilt())
    return false;
  Named inputs = drawInputs(parsed.function, from);
  Named got = sharded.run("f", inputs),
        expected = runProgram(*parsed.module, "f", inputs);
  EXPECT_EQ(got.size(), expected.size());
  // Parts are summed after the op instead of before.
  bool exact = !from.rounds && cut.parts.empty();
  for (const auto &[name, value] : expected)
    if (got.count(name))
      EXPECT_LE(distance(got.at(name), value), exact ? 0 : 1e-12)
          << "result " << name;
  return true;
}

//===--- all cuts ---------------------------------------------------------===//

// Of one loopDim along one axis and along two, of every two loops, and of
// parts along an axis beside a loopDim.
std::vector<Cut> cutsOf(const OpRule &rule) {
  std::vector<Cut> cuts;
  size_t count = rule.loops.size();
  auto add = [&](SmallVector<int64_t, 2> mesh,
                 ArrayRef<std::pair<unsigned, Axes>> loops) -> Cut * {
    Cut cut{mesh, std::vector<Axes>(count)};
    for (const auto &[loopDim, axes] : loops) {
      int64_t pieces = 1;
      for (unsigned axis : axes)
        pieces *= mesh[axis];
      // Rows in each device's own order are only seen in whole models.
      if (rule.loops[loopDim].kind == LoopKind::whole ||
          rule.loops[loopDim].kind == LoopKind::own ||
          rule.loops[loopDim].size < pieces)
        return nullptr;
      cut.loops[loopDim] = axes;
    }
    cuts.push_back(std::move(cut));
    return &cuts.back();
  };
  add({2}, {});
  for (unsigned i = 0; i < count; ++i) {
    add({2}, {{i, {0}}});
    add({3}, {{i, {0}}});
    add({2, 2}, {{i, {0, 1}}});
    add({2, 2}, {{i, {1, 0}}});
    for (unsigned k = i + 1; k < count; ++k)
      add({2, 3}, {{i, {1}}, {k, {0}}});
  }
  for (const auto &set : rule.linear)
    for (unsigned i = 0; i <= count; ++i) {
      SmallVector<std::pair<unsigned, Axes>> loopDim;
      if (i < count)
        loopDim.push_back({i, {1}});
      if (Cut *cut = add({2, 2}, loopDim))
        cut->parts = {0}, cut->linear = set;
    }
  return cuts;
}

std::vector<std::string> namesOfOps() {
  context().loadDialect<dist::DistDialect>();
  std::vector<std::string> names;
  for (RegisteredOperationName name : context().getRegisteredOperations())
    if (name.getDialectNamespace() == "graph")
      names.push_back(name.stripDialect().str());
  return names;
}

class Ops : public ::testing::TestWithParam<std::string> {};

TEST_P(Ops, MeanTheSameUnderEveryCut) {
  auto [begin, end] = opCases().equal_range(GetParam());
  ASSERT_NE(begin, end) << "graph." << GetParam()
                        << " has no case in OpCases.cpp";
  for (auto it = begin; it != end; ++it) {
    Parsed parsed(it->second);
    ASSERT_TRUE(parsed.module) << it->second.text;
    ASSERT_EQ(parsed.op->getName().stripDialect(), GetParam());
    FailureOr<OpRule> rule = ruleOf(parsed.op);
    ASSERT_TRUE(succeeded(rule));
    int64_t tried = 0;
    for (const Cut &cut : cutsOf(*rule))
      tried += check(it->second, cut);
    EXPECT_GT(tried, 0) << it->second.text;
  }
}

// A device that has a part of a loop without results would not compute the
// result of others, and a sum is over what operands have.
TEST_P(Ops, HaveRulesThatNameTheirLoops) {
  auto [begin, end] = opCases().equal_range(GetParam());
  for (auto it = begin; it != end; ++it) {
    Parsed parsed(it->second);
    ASSERT_TRUE(parsed.module);
    OpRule rule = *ruleOf(parsed.op);
    auto has = [](const OpRule::Dims &dims, unsigned loopDim) {
      return llvm::any_of(dims, [&](const OpRule::Dim &dim) {
        return llvm::is_contained(dim, loopDim);
      });
    };
    for (auto [i, loopDim] : llvm::enumerate(rule.loops)) {
      // Groups beside rows that are sent are those of all columns.
      for (auto [number, dims] : llvm::enumerate(rule.results))
        EXPECT_TRUE(loopDim.kind != LoopKind::parallel || has(dims, i) ||
                    (rule.sentResult && number != *rule.sentResult))
            << it->second.text << "\nletter " << i;
      EXPECT_TRUE(
          loopDim.kind != LoopKind::sum ||
          llvm::any_of(rule.operands,
                       [&](const OpRule::Dims &dims) { return has(dims, i); }))
          << it->second.text << "\nletter " << i;
    }
    auto fits = [&](Value value, const OpRule::Dims &dims) {
      ArrayRef<int64_t> shape = tensorType(value).getShape();
      ASSERT_EQ(shape.size(), dims.size());
      for (auto [size, names] : llvm::zip(shape, dims)) {
        int64_t product = 1;
        for (unsigned name : names)
          product *= rule.loops[name].size;
        EXPECT_EQ(product, size) << it->second.text;
      }
    };
    for (auto [operand, dims] :
         llvm::zip(parsed.op->getOperands(), rule.operands))
      fits(operand, dims);
    for (auto [result, dims] : llvm::zip(parsed.op->getResults(), rule.results))
      fits(result, dims);
  }
}

// What has a body or ends one is no computation: calls and loops are what
// models are made of.
std::vector<std::string> namesOfComputations() {
  std::vector<std::string> names = namesOfOps();
  llvm::erase_if(names, [](const std::string &name) {
    return name == "yield" || name == "loop" || name == "cluster";
  });
  return names;
}

INSTANTIATE_TEST_SUITE_P(Graph, Ops, ::testing::ValuesIn(namesOfComputations()),
                         [](const auto &info) { return info.param; });

} // namespace
