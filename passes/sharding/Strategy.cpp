// A greedy search over colors. An axis takes the color that lowers the estimate
// most, then the next one behind it, until none does.
#include "passes/sharding/Strategy.h"
#include "dialects/dist/Figures.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "passes/sharding/LocalOps.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

//===--- what a strategy costs --------------------------------------------===//

namespace {
using dist::kBytesPerSecond;
using dist::kFlopsPerSecond;
using dist::kLatency;
using dist::kLinkBytes;

/// How communication is priced beside computing.
struct LinkPrice {
  double weight = 1.0;
  bool latency = true; ///< whether messages cost time whatever their size
};

class Estimate {
public:
  Estimate(const Mesh &mesh, const Shardings &shardings, LinkPrice price)
      : mesh(mesh), shardings(shardings), price(price) {}

  double ofFunction(func::FuncOp function) {
    auto [known, isNew] = functions.try_emplace(function, 0.0);
    if (!isNew)
      return known->second;
    double seconds = ofBlock(function.getBody().front());
    return functions[function] = seconds;
  }

private:
  double ofBlock(Block &block) {
    double seconds = 0;
    for (unsigned number : shardings.classes.stepsOf(block)) {
      const Congruence::Step &step = shardings.classes.step(number);
      seconds += step.count * ofStep(step, shardings.plan(number));
    }
    return seconds;
  }

  // Of one of the ops that are alike.
  double ofStep(const Congruence::Step &step, const Plan &plan) {
    Operation *op = step.op;
    double seconds = 0;
    if (!isa<graph::YieldOp, graph::LoopOp>(op))
      for (auto [use, wanted] : llvm::zip(step.uses, plan.wanted))
        seconds += price.weight * use.count *
                   ofMoving(op->getOperand(use.operand),
                            shardings.asUsed(use.value), *wanted);
    if (auto call = dyn_cast<func::CallOp>(op);
        call && !shardings.isPointwiseCall(op))
      return seconds +
             ofFunction(shardings.classes.factors.functions().of(call));
    if (auto loop = dyn_cast<graph::LoopOp>(op))
      return seconds + loop.getTrip() * ofBlock(loop.getBody().front());
    if (op->hasTrait<OpTrait::IsTerminator>())
      return seconds;
    // A plan is of ops of one kind.
    auto [known, isNew] = plans.try_emplace(&plan, 0.0);
    if (isNew)
      known->second = ofComputing(op, plan) +
                      price.weight * ofPassingKeys(op, plan) +
                      ofExchanging(op, plan);
    return seconds + known->second;
  }

  int64_t pieces(const Placement &placement) const {
    int64_t count = 1;
    for (const DimPlacement &dim : placement.dims)
      for (const Factor &factor : dim)
        count *= mesh.size(factor.axes);
    return count;
  }

  double bytes(Value value) const {
    auto type = tensorType(value);
    return static_cast<double>(type.getNumElements()) *
           std::max(1u, type.getElementTypeBitWidth() / 8);
  }

  // Roofline of one device's share; work is divided by how often the op's loops
  // are cut, which is seen in operands and results together.
  double ofComputing(Operation *op, const Plan &plan) const {
    llvm::SmallDenseSet<unsigned> axes;
    double traffic = 0;
    auto add = [&](Value value, const Placement &placement) {
      traffic += bytes(value) / pieces(placement);
      for (const DimPlacement &dim : placement.dims)
        for (const Factor &factor : dim)
          axes.insert(factor.axes.begin(), factor.axes.end());
    };
    for (auto [operand, wanted] : llvm::zip(op->getOperands(), plan.wanted))
      add(operand, *wanted);
    for (auto [result, made] : llvm::zip(op->getResults(), plan.made))
      add(result, *made);
    double flops = 0;
    if (auto costed = dyn_cast<graph::Costed>(op))
      flops = costed.getFlops();
    for (unsigned axis : axes)
      flops /= mesh.size(axis);
    if (auto fusable = dyn_cast<graph::Fusable>(op);
        fusable && fusable.isView())
      return 0;
    return std::max(flops / kFlopsPerSecond, traffic / kBytesPerSecond);
  }

  // Rings: a gather or a scatter moves the whole once, a reduction twice.
  double ofMoving(Value value, const Placement &from,
                  const Placement &to) const {
    double seconds = 0;
    if (&from == &to)
      return seconds;
    for (unsigned axis = 0; axis < mesh.rank(); ++axis) {
      bool part = llvm::is_contained(from.partial, axis) &&
                  !llvm::is_contained(to.partial, axis);
      bool cutFrom = from.uses(axis) && !llvm::is_contained(from.partial, axis);
      bool cutTo = to.uses(axis) && !llvm::is_contained(to.partial, axis);
      double rounds = part && cutTo ? 1 : part ? 2 : cutFrom && !cutTo ? 1 : 0;
      if (rounds == 0)
        continue;
      auto tier = static_cast<unsigned>(mesh.axes[axis].getLink());
      double n = mesh.size(axis);
      double share =
          bytes(value) /
          std::min(pieces(from) * (cutFrom ? 1.0 / n : 1.0),
                   static_cast<double>(pieces(to)) * (cutTo ? 1.0 / n : 1.0));
      seconds +=
          rounds * (n - 1) *
          ((price.latency ? kLatency[tier] : 0) + share / n / kLinkBytes[tier]);
    }
    return seconds;
  }

  // Attention whose tokens are cut: shares of keys and values go around, in the
  // gradient with those of their gradients, which are wider (LocalAttention).
  double ofPassingKeys(Operation *op, const Plan &plan) const {
    if (!isa<graph::AttentionOp, graph::AttentionGradOp>(op))
      return 0;
    const Placement &keys = *plan.wanted[1];
    double share = 2 * bytes(op->getOperand(1)) / pieces(keys), seconds = 0;
    if (isa<graph::AttentionGradOp>(op))
      share *= 3;
    for (const Factor &factor : keys.dims[1])
      for (unsigned axis : factor.axes) {
        auto tier = static_cast<unsigned>(mesh.axes[axis].getLink());
        seconds +=
            static_cast<double>(mesh.size(axis) - 1) *
            ((price.latency ? kLatency[tier] : 0) + share / kLinkBytes[tier]);
      }
    return seconds;
  }

  // Counts and then rows, of which those of other devices' groups leave; and
  // what comes is put in order, written and read once more.
  double ofExchanging(Operation *op, const Plan &plan) const {
    bool sends = isa<graph::SendRowsOp>(op);
    if (!sends && !isa<graph::ReturnRowsOp>(op))
      return 0;
    const Placement &home = sends ? *plan.wanted[0] : *plan.made[0],
                    &sent = sends ? *plan.made[0] : *plan.wanted[0];
    double size = bytes(op->getOperand(0)), seconds = 0;
    for (unsigned axis : exchangedAxes(home, sent)) {
      auto tier = static_cast<unsigned>(mesh.axes[axis].getLink());
      double n = mesh.size(axis);
      double share = size / pieces(home);
      seconds += price.weight * (n - 1) *
                 ((price.latency ? 2 * kLatency[tier] : 0) +
                  share / n / kLinkBytes[tier]);
      seconds += 2 * size / pieces(sent) / kBytesPerSecond;
    }
    return seconds;
  }

  const Mesh &mesh;
  const Shardings &shardings;
  LinkPrice price;
  llvm::DenseMap<Operation *, double> functions;
  llvm::DenseMap<const Plan *, double> plans;
};
} // namespace

// Of one step, in seconds, of which only ratios between strategies of one
// module mean anything.
static double estimate(ModuleOp module, const Mesh &mesh,
                       const Shardings &shardings, LinkPrice price) {
  Estimate estimate(mesh, shardings, price);
  double seconds = 0;
  for (auto function : module.getOps<func::FuncOp>())
    if (function.isPublic() && function.getName() != "init")
      seconds += estimate.ofFunction(function);
  return seconds;
}

//===--- which colors an axis may cut -------------------------------------===//

using Colors = SmallVector<Color, 8>;

static void addColors(Value value, const Factors &factors, Colors &colors) {
  for (const Factors::Atoms &atoms : factors.of(value))
    for (Factors::Atom atom : atoms)
      if (!llvm::is_contained(colors, atom.color))
        colors.push_back(atom.color);
}

namespace {
/// What the colors of a model are: from the inputs of its programs, and from
/// what goes from one block to the next.
struct Roles {
  Colors sequences;                      ///< of a batch
  Colors tokens;                         ///< of a sequence
  SmallVector<Factors::Atoms> tokenDims; ///< the same, of each input
  Colors stream;     ///< of what blocks hand on, such as the model's width
  Colors parameters; ///< of weights
  Colors experts;    ///< of weights, one group of rows for each
};
} // namespace

static void addInputs(func::FuncOp function, const Congruence &classes,
                      Roles &roles) {
  const Factors &factors = classes.factors;
  for (BlockArgument argument : classes.argumentsOf(function)) {
    unsigned i = argument.getArgNumber();
    if (auto role =
            function.getArgAttrOfType<graph::RoleAttr>(i, graph::kRoleAttr);
        role && role.getValue() == graph::Role::parameter)
      addColors(argument, factors, roles.parameters);
    auto name = function.getArgAttrOfType<StringAttr>(i, graph::kInputAttr);
    int64_t rank = tensorType(argument).getRank();
    if (!name || (name != "tokens" && name != "targets") || rank < 2)
      continue;
    auto dims = factors.of(argument);
    for (Factors::Atom atom : dims[rank - 2])
      roles.sequences.push_back(atom.color);
    for (Factors::Atom atom : dims[rank - 1])
      roles.tokens.push_back(atom.color);
    roles.tokenDims.push_back(dims[rank - 1]);
  }
}

// A program that is not differentiated hands its blocks nothing but the stream
// and weights.
static void addStream(func::FuncOp function, const Factors &factors,
                      Roles &roles) {
  for (auto call : function.getOps<func::CallOp>())
    if (!factors.computes(call))
      for (Value result : call.getResults())
        addColors(result, factors, roles.stream);
}

static void addExperts(ModuleOp module, const Factors &factors, Roles &roles) {
  module.walk([&](graph::GroupedMatmulOp op) {
    Factors::Computation computation = factors.of(op.getOperation());
    if (computation.rule.groups)
      for (Factors::Atom atom : computation.letters[*computation.rule.groups])
        if (!llvm::is_contained(roles.experts, atom.color))
          roles.experts.push_back(atom.color);
  });
}

static Roles rolesOf(ModuleOp module, const Congruence &classes) {
  Roles roles;
  addExperts(module, classes.factors, roles);
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!function.isPublic() || function.getName() == "init")
      continue;
    addInputs(function, classes, roles);
    if (function.getName() != "train_step")
      addStream(function, classes.factors, roles);
  }
  return roles;
}

//===--- the search -------------------------------------------------------===//

namespace {
class Search {
public:
  Search(ModuleOp module, const Congruence &classes, const Mesh &mesh,
         Strategy &strategy, SearchEffort &effort)
      : module(module), mesh(mesh), strategy(strategy), effort(effort),
        shardings(classes, mesh, strategy) {}

  /// Appends to the axis the color of `from` that lowers the estimate most, as
  /// long as one does.
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
        if (*seconds < *best * 0.9999)
          best = seconds, next = attempt, better = true;
      }
      if (next)
        strategy = *next;
    }
    return best;
  }

  /// Rows of experts are exchanged along the axis if that lowers the estimate,
  /// or if the model says that they always are.
  LogicalResult exchangeRows(unsigned axis) {
    bool any = false, always = false;
    module.walk([&](graph::SendRowsOp op) {
      any = true;
      always |= op.getAlways();
    });
    if (!any)
      return success();
    Strategy attempt = strategy;
    attempt.exchanged.push_back(axis);
    FailureOr<double> gathered = measure(strategy, {}),
                      exchanged = measure(attempt, {});
    if (failed(gathered) || failed(exchanged))
      return failure();
    if (always || *exchanged < *gathered)
      strategy = std::move(attempt);
    return success();
  }

private:
  FailureOr<double> measure(const Strategy &attempt, LinkPrice price) {
    shardings.restart(attempt);
    uint64_t before = shardings.decisions();
    if (failed(shardings.build(module, "init")))
      return failure();
    ++effort.strategies;
    effort.decisions += shardings.decisions() - before;
    return estimate(module, mesh, shardings, price);
  }

  ModuleOp module;
  const Mesh &mesh;
  Strategy &strategy;
  SearchEffort &effort;
  Shardings shardings; ///< of what was measured last
};
} // namespace

// Who asks for tensor parallelism wants weights and work divided even where the
// model is too small to gain from it: communication only decides between ways
// to do so.
static constexpr LinkPrice kLinksWhenAsked{0.01, false};

//===--- tokens -----------------------------------------------------------===//

// Whether every attention sees all earlier tokens, and no others.
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

// Of causal attention the device with the last tokens would do most, if each
// had a run of them. With every n-th token all do the same (Brandon et al.
// 2023, Striped Attention). None where that is not to be had.
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

FailureOr<Strategy> sharding::chooseStrategy(ModuleOp module, Factors &factors,
                                             const Congruence &classes,
                                             const Mesh &mesh, ZeroStage zero,
                                             SearchEffort &effort, bool parts) {
  Strategy strategy;
  strategy.colors.resize(mesh.rank());
  strategy.zero = zero;
  Colors stripes;
  if (auto context = mesh.find("context"))
    stripes = stripeTokens(module, factors, classes, mesh.size(*context));
  Roles roles = rolesOf(module, classes);
  Search search(module, classes, mesh, strategy, effort);
  for (unsigned axis = 0; axis < mesh.rank(); ++axis) {
    StringRef name = mesh.axes[axis].getName();
    if (name == "data") {
      strategy.colors[axis] = roles.sequences;
      strategy.zeroAxes.push_back(axis);
    } else if (name == "expert") {
      // Where there are no experts it cuts what data does.
      if (roles.experts.empty() && mesh.size(axis) > 1)
        return module.emitError("mesh axis 'expert': the model has no experts");
      strategy.colors[axis] = roles.experts;
      llvm::append_range(strategy.colors[axis], roles.sequences);
      strategy.zeroAxes.push_back(axis);
    } else if (name == "context") {
      strategy.colors[axis] = stripes.empty() ? roles.tokens : stripes;
      strategy.zeroAxes.push_back(axis);
    } else if (name == "tensor") {
      Colors inner;
      for (Color color : roles.parameters)
        if (!llvm::is_contained(roles.stream, color))
          inner.push_back(color);
      // Then tokens: between blocks nothing of the others is left to cut.
      if (mesh.size(axis) > 1 &&
          (failed(search.add(axis, inner, kLinksWhenAsked)) ||
           failed(search.add(axis, roles.tokens,
                             parts ? kLinksWhenAsked : LinkPrice{}))))
        return failure();
    } else if (name == dist::kPipeAxis) {
      // Cuts programs, not tensors: passes/pipeline.
    } else {
      return module.emitError("mesh axis '")
             << name
             << "' is none of those that exist: pipe, data, expert, context, "
                "tensor";
    }
  }
  if (auto expert = mesh.find("expert"); expert && mesh.size(*expert) > 1)
    if (failed(search.exchangeRows(*expert)))
      return failure();
  return strategy;
}
