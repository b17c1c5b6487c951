#include "passes/autodiff/StepHooks.h"
#include "dialects/graph/BatchInputs.h"
#include "dialects/graph/PlainFunction.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;

StepHooks::StepHooks(func::FuncOp gradients) : gradients(gradients) {
  auto module = gradients->getParentOfType<ModuleOp>();
  prepareStep = graph::findProgram(module, graph::Program::prepare_step);
  finishStep = graph::findProgram(module, graph::Program::finish_step);
}

LogicalResult StepHooks::check(ArrayRef<Parameter> parameters) {
  return failure(failed(checkPrepare()) || failed(checkFinish(parameters)));
}

// The function has a body, and takes parameters of the loss and inputs only.
static LogicalResult checkTaken(func::FuncOp function, func::FuncOp gradients) {
  if (function.isExternal())
    return function.emitOpError("has no body");
  SmallVector<Parameter> known = parametersOf(gradients);
  for (const Parameter &each : parametersOf(function))
    if (llvm::none_of(known, [&](const Parameter &other) {
          return other.name == each.name && other.type == each.type;
        }))
      return function.emitOpError()
             << "takes '" << each.name.getValue() << "' of type " << each.type
             << ", which is not a parameter of the loss";
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (!function.getArgAttr(i, graph::kStateAttr) &&
        !function.getArgAttr(i, graph::kInputAttr))
      return function.emitOpError()
             << "argument " << i << " is neither state nor input";
  return requirePlainFunction(function);
}

LogicalResult StepHooks::checkPrepare() {
  if (!prepareStep)
    return success();
  if (failed(checkTaken(prepareStep, gradients)))
    return failure();
  for (BlockArgument argument : prepareStep.getArguments())
    if (auto name = prepareStep.getArgAttrOfType<StringAttr>(
            argument.getArgNumber(), graph::kInputAttr);
        name &&
        !llvm::is_contained({"seed", "step", "offset"}, name.getValue()) &&
        !graph::isBatchInput(name.getValue()))
      return prepareStep.emitOpError() << "takes '" << name.getValue()
                                       << "', which is known only to the loss";
  for (auto [i, type] : llvm::enumerate(prepareStep.getResultTypes())) {
    StringRef name = outputName(prepareStep, i);
    Value input = name.empty() ? Value() : findInput(gradients, name);
    if (!input || input.getType() != type)
      return prepareStep.emitOpError()
             << "result " << i << " of type " << type
             << " is not an input of the loss of that name and type";
  }
  return success();
}

LogicalResult StepHooks::checkFinish(ArrayRef<Parameter> parameters) {
  llvm::StringSet<> given;
  if (finishStep) {
    if (failed(checkTaken(finishStep, gradients)))
      return failure();
    for (BlockArgument argument : finishStep.getArguments()) {
      auto name = finishStep.getArgAttrOfType<StringAttr>(
          argument.getArgNumber(), graph::kInputAttr);
      if (!name)
        continue;
      auto results = llvm::seq<unsigned>(0, gradients.getNumResults());
      auto found = llvm::find_if(results, [&](unsigned i) {
        return outputName(gradients, i) == name.getValue() &&
               gradients.getResultTypes()[i] == argument.getType();
      });
      if (found == results.end())
        return finishStep.emitOpError()
               << "takes '" << name.getValue() << "' of type "
               << argument.getType() << ", which the loss does not give";
      wanted.push_back(*found);
    }
    for (unsigned i = 0; i < finishStep.getNumResults(); ++i)
      if (auto state =
              finishStep.getResultAttrOfType<StringAttr>(i, graph::kStateAttr))
        given.insert(state.getValue());
  }
  // All frozen parameters have next values, or all are constant.
  for (const Parameter &parameter : parameters)
    if (bool isGiven = given.contains(parameter.name.getValue());
        parameter.frozen ? !isGiven && !given.empty() : isGiven)
      return gradients.emitOpError()
             << "parameter '" << parameter.name.getValue() << "' is "
             << (parameter.frozen ? "frozen, and " : "not frozen, but ")
             << graph::stringifyProgram(graph::Program::finish_step)
             << (parameter.frozen ? " gives only others' next values"
                                  : " gives its next value");
  return success();
}

SmallVector<Value> StepHooks::cotangents(func::FuncOp function) const {
  SmallVector<Value> found;
  for (BlockArgument argument : function.getArguments())
    if (auto name = function.getArgAttrOfType<StringAttr>(
            argument.getArgNumber(), graph::kInputAttr))
      if (name.getValue().starts_with(kCotangent) &&
          name.getValue() != kCotangent)
        found.push_back(argument);
  return found;
}

SmallVector<Port> StepHooks::outputPorts() {
  SmallVector<Port> ports;
  for (unsigned i = 0; finishStep && i < finishStep.getNumResults(); ++i)
    if (StringRef name = outputName(finishStep, i); !name.empty())
      ports.push_back(outputPort(
          name, cast<RankedTensorType>(finishStep.getResultTypes()[i])));
  return ports;
}

void StepHooks::erase() {
  for (func::FuncOp function : {prepareStep, finishStep})
    if (function)
      function.erase();
}
