// A greedy search over sharding groups. An axis takes the group that decreases
// the estimate most, then the next, until none does. The solver then chooses
// for single ops.
#include "passes/sharding/Strategy.h"
#include "dialects/graph/BatchInputs.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "passes/sharding/LocalOps.h"
#include "passes/sharding/OpSearch.h"
#include "passes/sharding/solver/Solve.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

//===--- the groups that an axis may shard --------------------------------===//

using Colors = SmallVector<Color, 8>;

static void addColors(Value value, const Factors &factors, Colors &colors) {
  for (const Factors::Atoms &atoms : factors.of(value))
    for (Factors::Atom atom : atoms)
      if (!llvm::is_contained(colors, atom.color))
        colors.push_back(atom.color);
}

namespace {
/// The meaning of sharding groups, from the inputs of programs and from the
/// tensors between blocks.
struct Roles {
  Colors sequences;                      ///< of a batch
  Colors tokens;                         ///< of a sequence
  SmallVector<Factors::Atoms> tokenDims; ///< the same, of each input
  Colors stream;     ///< of tensors between blocks, such as the model's width
  Colors parameters; ///< of weights
  Colors experts;    ///< of weights, one group of rows for each
  Colors expertDims; ///< the other dimensions of those weights
  int64_t leastExperts = 0; ///< of a layer
};
} // namespace

// The rank of `tokens`, which ends in sequences and their tokens. Inputs of
// higher rank have several elements for each token.
static int64_t batchRank(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments()) {
    auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                      graph::kInputAttr);
    if (name && name.getValue() == "tokens")
      return tensorType(argument).getRank();
  }
  return 0;
}

static void addInputs(func::FuncOp function, const Congruence &classes,
                      Roles &roles) {
  const Factors &factors = classes.factors;
  const int64_t rank = batchRank(function);
  for (BlockArgument argument : classes.argumentsOf(function)) {
    unsigned i = argument.getArgNumber();
    if (auto role =
            function.getArgAttrOfType<graph::RoleAttr>(i, graph::kRoleAttr);
        role && role.getValue() == graph::Role::parameter)
      addColors(argument, factors, roles.parameters);
    auto name = function.getArgAttrOfType<StringAttr>(i, graph::kInputAttr);
    // What nothing reads, such as the targets of scores, has no groups.
    if (!name || rank < 2 || argument.use_empty() ||
        !graph::isBatchInput(name.getValue()))
      continue;
    auto dims = factors.of(argument);
    for (Factors::Atom atom : dims[rank - 2])
      roles.sequences.push_back(atom.color);
    for (Factors::Atom atom : dims[rank - 1])
      roles.tokens.push_back(atom.color);
    roles.tokenDims.push_back(dims[rank - 1]);
  }
}

// Whether a program returns the value as state, such as a block's KV cache.
static bool isReturnedState(Value value) {
  return llvm::any_of(value.getUses(), [](OpOperand &use) {
    auto ret = dyn_cast<func::ReturnOp>(use.getOwner());
    return ret && ret->getParentOfType<func::FuncOp>().getResultAttr(
                      use.getOperandNumber(), graph::kStateAttr);
  });
}

// In a program without a backward pass, blocks read only the stream, weights
// and KV caches.
static void addStream(func::FuncOp function, const Factors &factors,
                      Roles &roles) {
  for (auto call : function.getOps<func::CallOp>())
    if (!factors.computes(call))
      for (Value result : call.getResults())
        if (!isReturnedState(result))
          addColors(result, factors, roles.stream);
}

// Rank 0 sends every rank the inputs of inference as they are, so no axis
// shards sequences or tokens.
static bool hasWholeInputs(func::FuncOp function) {
  return graph::isProgram(function, graph::Program::prefill) ||
         graph::isProgram(function, graph::Program::decode);
}

static void addExperts(ModuleOp module, const Factors &factors, Roles &roles) {
  module.walk([&](graph::GroupedMatmulOp op) {
    Factors::Computation computation = factors.of(op.getOperation());
    if (!computation.rule.groups)
      return;
    for (Factors::Atom atom : computation.loops[*computation.rule.groups])
      if (!llvm::is_contained(roles.experts, atom.color))
        roles.experts.push_back(atom.color);
    addColors(op.getRhs(), factors, roles.expertDims);
    int64_t count = tensorType(op.getRhs()).getDimSize(0);
    if (roles.leastExperts == 0 || count < roles.leastExperts)
      roles.leastExperts = count;
  });
  llvm::erase_if(roles.expertDims, [&](Color color) {
    return llvm::is_contained(roles.experts, color);
  });
}

static Roles rolesOf(ModuleOp module, const Congruence &classes) {
  Roles roles;
  addExperts(module, classes.factors, roles);
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!isRepeated(function))
      continue;
    addInputs(function, classes, roles);
    if (hasWholeInputs(function))
      roles.sequences.clear(), roles.tokens.clear();
    if (!graph::isProgram(function, graph::Program::train_step))
      addStream(function, classes.factors, roles);
  }
  return roles;
}

//===--- the search -------------------------------------------------------===//

// A user who requests tensor parallelism expects weights and work to be divided
// even if the model is too small to gain by it: communication only decides
// between ways to do so.
static constexpr LinkPrice kLinksWhenAsked{0.01, false, /*coarse=*/true};
static constexpr LinkPrice kLinksOfGroups{1.0, true, /*coarse=*/true};

namespace {
class Search {
public:
  Search(ModuleOp module, const Congruence &classes, const Mesh &mesh,
         Strategy &strategy, SearchEffort &effort)
      : module(module), mesh(mesh), strategy(strategy), effort(effort),
        classes(classes), shardings(classes, mesh, strategy) {}

  /// Appends to the axis the group of `from` that decreases the estimate most,
  /// as long as one does.
  LogicalResult add(unsigned axis, Colors from, LinkPrice price) {
    FailureOr<double> best = measure(strategy, price);
    for (bool better = true; better && succeeded(best);) {
      better = false;
      std::optional<Strategy> next;
      for (Color color : from) {
        if (llvm::is_contained(strategy.colors[axis], color))
          continue;
        Strategy attempt = strategy;
        attempt.colors[axis].push_back(color);
        FailureOr<double> seconds = measure(attempt, price);
        if (failed(seconds))
          return failure();
        if (*seconds < *best * kWorthwhile)
          best = seconds, next = attempt, better = true;
      }
      if (next)
        strategy = *next;
    }
    return best;
  }

  /// Exchanges rows of experts along the axes if that decreases the estimate,
  /// or if the model requires it. Along `folded`, which otherwise need not
  /// shard tokens, each device sends its part: of the first of `tokens` that
  /// can be sharded so, or of a later one if that is faster.
  LogicalResult exchangeRows(ArrayRef<unsigned> axes,
                             std::optional<unsigned> folded,
                             std::initializer_list<Colors> tokens) {
    bool any = false, always = false;
    module.walk([&](graph::SendRowsOp op) {
      any = true;
      always |= op.getAlways();
    });
    if (!any)
      return success();
    FailureOr<double> best = measure(strategy, kLinksOfGroups);
    std::optional<Strategy> chosen;
    for (const Colors &colors : tokens) {
      Strategy attempt = strategy;
      attempt.exchanged.assign(axes.begin(), axes.end());
      if (folded)
        addMissing(attempt.colors[*folded], colors);
      FailureOr<double> seconds = measure(attempt, kLinksOfGroups);
      if (failed(best) || failed(seconds))
        return failure();
      if ((folded || axes.size() > 1) && !exchangesAlong(axes))
        continue;
      if (*seconds < *best || (always && !chosen))
        best = seconds, chosen = std::move(attempt);
      if (!folded)
        break;
    }
    if (chosen)
      strategy = std::move(*chosen);
    return success();
  }

  /// Shards single ops differently from the axis's groups, if that decreases
  /// the estimate.
  LogicalResult solve(unsigned axis, ArrayRef<Color> tokens) {
    FailureOr<double> before = measure(strategy, {});
    if (failed(before))
      return failure();
    uint64_t decisions = shardings.decisions();
    OpSearch problem(module, classes, mesh, shardings, axis, tokens, {});
    effort.decisions += shardings.decisions() - decisions;
    auto &solved = effort.solved.emplace();
    solved.nodes = problem.problem().nodes.size();
    solved.before = solved.after = *before;
    // So few steps that they take about as long as the search over groups.
    auto solution = solver::solve(problem.problem(), {.steps = 31});
    solved.failed = !solution.ok();
    if (solved.failed)
      return success();
    solved.isOptimal = solution->optimal();
    Strategy attempt = strategy;
    attempt.exceptions = problem.exceptions(solution->choice);
    ScopedDiagnosticHandler quiet(module->getContext(),
                                  [](Diagnostic &) { return success(); });
    FailureOr<double> after = measure(attempt, {});
    solved.failed = failed(after);
    if (solved.failed || !(*after < *before * kWorthwhile))
      return success();
    solved.changed = problem.changes(solution->choice);
    solved.after = *after;
    strategy = std::move(attempt);
    return success();
  }

private:
  static void addMissing(Colors &to, ArrayRef<Color> colors) {
    for (Color color : colors)
      if (!llvm::is_contained(to, color))
        to.push_back(color);
  }

  /// Whether the strategy measured last exchanges all rows along all the axes.
  bool exchangesAlong(ArrayRef<unsigned> axes) {
    return !module
                .walk([&](graph::SendRowsOp op) {
                  auto along =
                      exchangedAxes(shardings.wanted(op.getRowsMutable()),
                                    shardings.of(op.getSent()));
                  return ArrayRef(along) == axes ? WalkResult::advance()
                                                 : WalkResult::interrupt();
                })
                .wasInterrupted();
  }

  /// A smaller gain does not count.
  static constexpr double kWorthwhile = 0.9999;

  FailureOr<double> measure(const Strategy &attempt, LinkPrice price) {
    shardings.restart(attempt);
    uint64_t before = shardings.decisions();
    if (failed(shardings.build(module, /*withInit=*/false)))
      return failure();
    ++effort.strategies;
    effort.decisions += shardings.decisions() - before;
    return estimate(module, mesh, shardings, price);
  }

  ModuleOp module;
  const Mesh &mesh;
  Strategy &strategy;
  SearchEffort &effort;
  const Congruence &classes;
  Shardings shardings; ///< of the strategy measured last
};
} // namespace

//===--- tokens -----------------------------------------------------------===//

// Whether every attention reads all earlier tokens, and no others.
static bool isPlainlyCausal(ModuleOp module) {
  return !module
              .walk([](Operation *op) {
                if (!isa<graph::AttentionOp, graph::AttentionGradOp>(op))
                  return WalkResult::advance();
                return op->hasAttr("causal") && !op->hasAttr("window")
                           ? WalkResult::advance()
                           : WalkResult::interrupt();
              })
              .wasInterrupted();
}

// With contiguous tokens the device with the last ones would have most of the
// work of causal attention. With every n-th token all devices have the same
// (Brandon et al. 2023, Striped Attention). Empty if that is not possible.
static Colors stripeTokens(ModuleOp module, Factors &factors,
                           const Congruence &classes, int64_t devices) {
  Colors stripes;
  if (devices == 1 || !isPlainlyCausal(module))
    return stripes;
  Colors tokens;
  bool divides = true;
  for (auto function : module.getOps<func::FuncOp>()) {
    Roles roles;
    if (function.isPublic())
      addInputs(function, classes, roles);
    for (const Factors::Atoms &dim : roles.tokenDims) {
      divides &= dim.size() == 1 && dim[0].size % devices == 0 &&
                 dim[0].size > devices;
      if (dim.size() == 1 && !llvm::is_contained(tokens, dim[0].color))
        tokens.push_back(dim[0].color);
    }
  }
  if (divides)
    for (Color color : tokens)
      stripes.push_back(factors.splitColor(color, devices));
  return stripes;
}

//===--- experts ----------------------------------------------------------===//

SmallVector<unsigned, 2> sharding::axesOfExperts(const Mesh &mesh,
                                                 const SearchOptions &options) {
  SmallVector<unsigned, 2> axes;
  for (auto [name, isOfExperts] : {std::pair("expert", true),
                                   {"context", options.expertContext == 1},
                                   {"tensor", options.expertTensor == 1}})
    if (auto axis = mesh.find(name);
        axis && isOfExperts && mesh.size(*axis) > 1)
      axes.push_back(*axis);
  return axes;
}

// What was requested of experts against the model and the mesh.
static LogicalResult checkExperts(ModuleOp module, const Roles &roles,
                                  const Mesh &mesh,
                                  const SearchOptions &options) {
  if (options.expertTensor == 0 && options.expertContext == 0)
    return success();
  StringRef option =
      options.expertTensor > 0 ? "expert_tensor" : "expert_context";
  if (roles.experts.empty())
    return module.emitError("mesh option '")
           << option << "': the model has no experts; leave the option out";
  int64_t devices = mesh.size(axesOfExperts(mesh, options));
  bool folds = options.expertTensor == 1 || options.expertContext == 1;
  if (!folds || devices <= roles.leastExperts)
    return success();
  return module.emitError("mesh option '")
         << option << "': " << roles.leastExperts
         << " experts are fewer than the " << devices
         << " devices over which they are distributed; decrease an axis, or "
            "leave the option out";
}

// What the axis tensor shards of experts before anything else, if that was
// requested.
static Colors foldedColors(const Roles &roles, int64_t expertTensor) {
  if (expertTensor == 1)
    return roles.experts;
  Colors widths;
  for (Color color : roles.expertDims)
    if (expertTensor > 1 && !llvm::is_contained(roles.stream, color))
      widths.push_back(color);
  return widths;
}

FailureOr<Strategy> sharding::chooseStrategy(ModuleOp module, Factors &factors,
                                             const Congruence &classes,
                                             const Mesh &mesh,
                                             const SearchOptions &options,
                                             SearchEffort &effort) {
  Strategy strategy;
  strategy.colors.resize(mesh.rank());
  strategy.zero = options.zero;
  strategy.hasMasters = hasMasters(module);
  Colors stripes;
  if (auto context = mesh.find("context"))
    stripes = stripeTokens(module, factors, classes, mesh.size(*context));
  Roles roles = rolesOf(module, classes);
  if (failed(checkExperts(module, roles, mesh, options)))
    return failure();
  Search search(module, classes, mesh, strategy, effort);
  const LinkPrice links = options.parts ? kLinksWhenAsked : kLinksOfGroups;
  for (unsigned axis = 0; axis < mesh.rank(); ++axis) {
    StringRef name = mesh.axes[axis].getName();
    if (name == "data") {
      strategy.colors[axis] = roles.sequences;
      strategy.zeroAxes.push_back(axis);
    } else if (name == "replicate") {
      strategy.colors[axis] = roles.sequences;
      strategy.replicaAxes.push_back(axis);
    } else if (name == "expert") {
      // Ops without experts are sharded as by `data`.
      if (roles.experts.empty() && mesh.size(axis) > 1)
        return module.emitError("mesh axis 'expert': the model has no experts");
      strategy.colors[axis] = roles.experts;
      llvm::append_range(strategy.colors[axis], roles.sequences);
      strategy.zeroAxes.push_back(axis);
    } else if (name == "context") {
      if (options.expertContext == 1)
        strategy.colors[axis] = roles.experts;
      llvm::append_range(strategy.colors[axis],
                         stripes.empty() ? roles.tokens : stripes);
      strategy.zeroAxes.push_back(axis);
    } else if (name == "tensor") {
      Colors inner;
      for (Color color : roles.parameters)
        if (!llvm::is_contained(roles.stream, color) &&
            (options.expertTensor <= 1 ||
             !llvm::is_contained(roles.experts, color)))
          inner.push_back(color);
      strategy.colors[axis] = foldedColors(roles, options.expertTensor);
      // Then tokens: between blocks tensors have none of the other groups.
      if (mesh.size(axis) > 1 &&
          (failed(search.add(axis, inner, kLinksWhenAsked)) ||
           failed(search.add(axis, roles.tokens, links))))
        return failure();
    } else if (name == dist::kPipeAxis) {
      // Splits programs, not tensors: passes/stages.
    } else {
      return module.emitError("unknown mesh axis '")
             << name
             << "'; expected one of: pipe, replicate, data, expert, context, "
                "tensor";
    }
  }
  if (auto axes = axesOfExperts(mesh, options); !axes.empty()) {
    std::optional<unsigned> folded = mesh.find("tensor");
    if (!llvm::is_contained(axes, folded))
      folded.reset();
    if (failed(
            search.exchangeRows(axes, folded, {roles.tokens, roles.sequences})))
      return failure();
  }
  // Collectives that overlap with matmuls cost too little to decide between
  // single ops.
  if (auto tensor = mesh.find("tensor");
      options.opByOp && !options.parts && tensor && mesh.size(*tensor) > 1) {
    Colors tokens = roles.sequences;
    llvm::append_range(tokens, roles.tokens);
    if (failed(search.solve(*tensor, tokens)))
      return failure();
  }
  return strategy;
}
