// The end of the phase: complete programs, and nothing half-made left.
#include "dialects/graph/GraphQuantOps.h"
#include "passes/autodiff/Autodiff.h"
#include "passes/autodiff/Program.h"
#include "runtime/train/Distill.h"
#include "runtime/train/Kto.h"
#include "runtime/train/Policy.h"
#include "runtime/train/Preference.h"
#include "runtime/train/Router.h"
#include "runtime/train/SeparateSteps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;

namespace tessera {
#define GEN_PASS_DEF_VERIFYSTEPPROGRAM
#include "passes/autodiff/Passes.h.inc"
} // namespace tessera

namespace {

/// A state tensor as one function knows it.
struct State {
  StringAttr name;
  Type type;
  graph::Role role;
};

/// Whether the state is of tokens that inference has read.
bool isOfInference(graph::Role role) {
  return role == graph::Role::cache || role == graph::Role::recurrent;
}

/// What a function takes and returns of the state.
struct Traffic {
  SmallVector<State> taken, returned;
};

llvm::StringSet<> namesOf(ArrayRef<State> states) {
  llvm::StringSet<> names;
  for (const State &state : states)
    names.insert(state.name.getValue());
  return names;
}

class ProgramVerifier {
public:
  ProgramVerifier(ModuleOp module, bool training)
      : module(module), training(training) {}

  LogicalResult verify() {
    if (failed(verifyFunctions()))
      return failure();
    for (auto function : module.getOps<func::FuncOp>())
      if (failed(collect(function)) || failed(verifyReturned(function)))
        return failure();
    if (!training)
      return failure(failed(verifyCaches()) || failed(verifyInit()));
    for (func::FuncOp step : steps)
      if (failed(verifyStep(step)) || failed(verifyMetrics(step)))
        return failure();
    return failure(failed(verifyInitTrained()) || failed(verifyInit()));
  }

private:
  LogicalResult verifyFunctions() {
    for (graph::Program kind :
         {graph::Program::loss, graph::Program::gradients})
      if (func::FuncOp left = graph::findProgram(module, kind))
        return left.emitOpError("is left: no step program was made of it");
    init = requireProgram(module, graph::Program::init, "importing a model");
    if (!init)
      return failure();
    if (!training)
      return llvm::count_if(module.getOps<func::FuncOp>(),
                            [](func::FuncOp function) {
                              return !function.isPrivate();
                            }) > 1
                 ? success()
                 : module.emitError("holds no program besides @init");
    const auto require = [&](graph::Program kind) {
      func::FuncOp found = requireProgram(module, kind, "build-train-step");
      if (found)
        steps.push_back(found);
      return success(found != nullptr);
    };
    if (!graph::findProgram(module, graph::Program::forward_backward))
      return require(graph::Program::train_step);
    if (failed(require(graph::Program::forward_backward)) ||
        failed(require(graph::Program::optimizer_step)))
      return failure();
    initTrained = requireProgram(module, graph::Program::init_trained,
                                 "build-train-step");
    return success(initTrained != nullptr);
  }

  LogicalResult collect(func::FuncOp function) {
    Traffic &own = traffic[function];
    for (auto [i, type] : llvm::enumerate(function.getArgumentTypes()))
      if (failed(add(function, function.getArgAttrDict(i), type, own.taken)))
        return failure();
    for (auto [i, type] : llvm::enumerate(function.getResultTypes()))
      if (failed(
              add(function, function.getResultAttrDict(i), type, own.returned)))
        return failure();
    return success();
  }

  // One type and one role a name, over all functions.
  LogicalResult add(func::FuncOp function, DictionaryAttr attrs, Type type,
                    SmallVector<State> &states) {
    auto name =
        attrs ? attrs.getAs<StringAttr>(graph::kStateAttr) : StringAttr();
    if (!name)
      return success();
    auto role = attrs.getAs<graph::RoleAttr>(graph::kRoleAttr);
    if (!role)
      return function.emitOpError()
             << "state '" << name.getValue() << "' has no " << graph::kRoleAttr;
    if (training && isOfInference(role.getValue()))
      return function.emitOpError()
             << "state '" << name.getValue()
             << "' is a cache, of which training knows nothing";
    State state{name, type, role.getValue()};
    const State &first =
        known.try_emplace(name.getValue(), state).first->second;
    if (first.type != type)
      return function.emitOpError()
             << "state '" << name.getValue() << "' is " << type << " here and "
             << first.type << " elsewhere";
    if (first.role != state.role)
      return function.emitOpError()
             << "state '" << name.getValue() << "' has the role "
             << stringifyRole(state.role) << " here and "
             << stringifyRole(first.role) << " elsewhere";
    if (attrs.contains(graph::kQuantizedAttr))
      quantized.insert(name.getValue());
    states.push_back(state);
    return success();
  }

  LogicalResult verifyReturned(func::FuncOp function) {
    llvm::StringSet<> taken = namesOf(traffic[function].taken), seen;
    for (const State &state : traffic[function].returned) {
      if (!seen.insert(state.name.getValue()).second)
        return function.emitOpError()
               << "returns state '" << state.name.getValue() << "' twice";
      if (function != init &&
          !graph::isProgram(function, graph::Program::init_trained) &&
          !taken.contains(state.name.getValue()))
        return function.emitOpError()
               << "returns state '" << state.name.getValue()
               << "' without taking it";
    }
    return success();
  }

  // Whether a step that takes the state must return it: all but constants, and
  // without the update parameters and the counter, too.
  static bool mustReturn(func::FuncOp step, const State &state) {
    if (graph::isProgram(step, graph::Program::forward_backward))
      return state.role == graph::Role::optimizer;
    return state.role != graph::Role::counter ||
           state.name.getValue() == "step";
  }

  LogicalResult verifyStep(func::FuncOp step) {
    llvm::StringSet<> returned = namesOf(traffic[step].returned);
    for (const State &state : traffic[step].taken) {
      if (mustReturn(step, state) && !returned.contains(state.name.getValue()))
        return step.emitOpError() << "takes state '" << state.name.getValue()
                                  << "' and does not return it";
    }
    return success();
  }

  LogicalResult verifyCaches() {
    for (auto &[function, own] : traffic) {
      llvm::StringSet<> returned = namesOf(own.returned);
      for (const State &state : own.taken)
        if (isOfInference(state.role) &&
            !returned.contains(state.name.getValue()))
          return function->emitOpError()
                 << "takes the cache '" << state.name.getValue()
                 << "' and does not return it";
    }
    return success();
  }

  LogicalResult verifyMetrics(func::FuncOp step) {
    Builder b(module.getContext());
    // All of them in the type in which the loss is.
    Type real = b.getF32Type();
    for (auto [i, type] : llvm::enumerate(step.getResultTypes()))
      if (auto name =
              step.getResultAttrOfType<StringAttr>(i, graph::kOutputAttr);
          name && llvm::is_contained({"loss", "grad_norm"}, name.getValue()) &&
          getElementTypeOrSelf(type).isF64())
        real = b.getF64Type();
    auto number = RankedTensorType::get({}, real);
    auto i64 = RankedTensorType::get({}, b.getI64Type());
    llvm::StringMap<Type> missing;
    if (!graph::isProgram(step, graph::Program::optimizer_step)) {
      missing["loss"] = number;
      missing["tokens"] = i64;
    }
    if (graph::isProgram(step, graph::Program::forward_backward))
      missing[kTermsOutput] = number;
    else
      missing["grad_norm"] = missing["lr"] = number;
    for (auto [i, type] : llvm::enumerate(step.getResultTypes())) {
      auto name = step.getResultAttrOfType<StringAttr>(i, graph::kOutputAttr);
      if (!name) {
        if (step.getResultAttr(i, graph::kStateAttr))
          continue;
        return step.emitOpError()
               << "result " << i << " is neither state nor output";
      }
      // Tables for people may follow.
      auto table = dyn_cast<RankedTensorType>(type);
      if (table && table.getElementType().isF32() &&
          ((name.getValue() == kRouterOutput && table.getRank() == 2) ||
           (llvm::is_contained(
                {kPreferenceOutput, kPolicyOutput, kKtoOutput, kDistillOutput},
                name.getValue()) &&
            table.getRank() == 1)))
        continue;
      if (missing.lookup(name.getValue()) != type)
        return step.emitOpError() << "has an unexpected output '"
                                  << name.getValue() << "' of type " << type;
      missing.erase(name.getValue());
    }
    for (StringRef name :
         {StringRef("loss"), StringRef("grad_norm"), StringRef("lr"),
          StringRef("tokens"), StringRef(kTermsOutput)})
      if (missing.contains(name))
        return step.emitOpError() << "has no output '" << name << "'";
    return success();
  }

  // It gives what steps change and the hyperparameters, and no more: the rest
  // is of all models that are trained.
  LogicalResult verifyInitTrained() {
    if (!initTrained)
      return success();
    llvm::StringSet<> own;
    for (func::FuncOp step : steps) {
      for (const State &state : traffic[step].returned)
        own.insert(state.name.getValue());
      for (const State &state : traffic[step].taken)
        if (state.role == graph::Role::counter)
          own.insert(state.name.getValue());
    }
    llvm::StringSet<> given = namesOf(traffic[initTrained].returned);
    for (const State &state : traffic[initTrained].returned)
      if (!own.contains(state.name.getValue()))
        return initTrained.emitOpError()
               << "gives state '" << state.name.getValue()
               << "', which no step changes";
    for (const State &state : traffic[init].returned)
      if (own.contains(state.name.getValue()) &&
          !given.contains(state.name.getValue()))
        return initTrained.emitOpError()
               << "does not give state '" << state.name.getValue()
               << "', which a step changes";
    return success();
  }

  LogicalResult verifyInit() {
    llvm::StringSet<> given = namesOf(traffic[init].returned);
    for (auto &[function, own] : traffic)
      for (const State &state : own.taken)
        if (!isOfInference(state.role) &&
            !quantized.contains(state.name.getValue()) &&
            !given.contains(state.name.getValue()))
          return init.emitOpError()
                 << "does not give state '" << state.name.getValue()
                 << "', which '" << cast<func::FuncOp>(function).getName()
                 << "' takes";
    return success();
  }

  ModuleOp module;
  bool training;
  func::FuncOp init, initTrained;  // the second of separate steps alone
  SmallVector<func::FuncOp> steps; // @train_step, or its two parts
  llvm::StringMap<State> known;
  llvm::StringSet<> quantized; // out of a checkpoint, never of @init
  llvm::MapVector<Operation *, Traffic> traffic;
};

struct VerifyStepProgram
    : tessera::impl::VerifyStepProgramBase<VerifyStepProgram> {
  using VerifyStepProgramBase::VerifyStepProgramBase;

  void runOnOperation() override {
    if (failed(ProgramVerifier(getOperation(), training).verify()))
      signalPassFailure();
  }
};

} // namespace
