#include "passes/autodiff/Program.h"
#include "dialects/graph/BatchInputs.h"
#include "dialects/graph/Build.h"
#include "dialects/graph/GraphQuantOps.h"
#include "dialects/graph/PlainFunction.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;

SmallVector<Parameter> tessera::autodiff::parametersOf(func::FuncOp function) {
  SmallVector<Parameter> result;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    auto role = function.getArgAttrOfType<graph::RoleAttr>(i, graph::kRoleAttr);
    auto name = function.getArgAttrOfType<StringAttr>(i, graph::kStateAttr);
    if (role && name && role.getValue() == graph::Role::parameter)
      result.push_back(
          {i, name, cast<RankedTensorType>(function.getArgumentTypes()[i]),
           function.getArgAttrOfType<graph::LayerAttr>(i, graph::kLayerAttr),
           function.getArgAttr(i, graph::kDecayAttr) != nullptr,
           function.getArgAttr(i, graph::kFrozenAttr) != nullptr,
           function.getArgAttr(i, graph::kQuantizedAttr)});
  }
  return result;
}

Value tessera::autodiff::findInput(func::FuncOp function, StringRef name) {
  for (BlockArgument argument : function.getArguments())
    if (auto input = function.getArgAttrOfType<StringAttr>(
            argument.getArgNumber(), graph::kInputAttr);
        input && input.getValue() == name)
      return argument;
  return {};
}

SmallVector<StringRef> tessera::autodiff::batchInputsOf(func::FuncOp function) {
  SmallVector<StringRef> names;
  for (StringRef name : graph::batchInputs())
    if (findInput(function, name))
      names.push_back(name);
  return names;
}

StringRef tessera::autodiff::outputName(func::FuncOp function, unsigned index) {
  auto name =
      function.getResultAttrOfType<StringAttr>(index, graph::kOutputAttr);
  return name ? name.getValue() : StringRef();
}

func::FuncOp tessera::autodiff::requireProgram(ModuleOp module,
                                               graph::Program kind,
                                               StringRef madeBy) {
  func::FuncOp function = graph::findProgram(module, kind);
  if (function && !function.isExternal())
    return succeeded(requirePlainFunction(function)) ? function
                                                     : func::FuncOp();
  module.emitError() << "has no program '" << graph::stringifyProgram(kind)
                     << "' with a body; " << madeBy << " makes it";
  return {};
}

Port tessera::autodiff::statePort(StringAttr name, RankedTensorType type,
                                  graph::Role role, graph::LayerAttr layer) {
  Builder b(name.getContext());
  SmallVector<NamedAttribute> attrs{
      b.getNamedAttr(graph::kStateAttr, name),
      b.getNamedAttr(graph::kRoleAttr,
                     graph::RoleAttr::get(name.getContext(), role))};
  if (layer)
    attrs.push_back(b.getNamedAttr(graph::kLayerAttr, layer));
  return {type, b.getDictionaryAttr(attrs)};
}

Port tessera::autodiff::parameterPort(const Parameter &parameter) {
  Port port = statePort(parameter.name, parameter.type, graph::Role::parameter,
                        parameter.layer);
  NamedAttrList attrs(port.attrs);
  if (parameter.decay)
    attrs.set(graph::kDecayAttr, UnitAttr::get(parameter.type.getContext()));
  if (parameter.quantized)
    attrs.set(graph::kQuantizedAttr, parameter.quantized);
  return {port.type, attrs.getDictionary(parameter.type.getContext())};
}

static Port hostPort(StringRef kind, StringRef name, RankedTensorType type) {
  Builder b(type.getContext());
  return {type,
          b.getDictionaryAttr(b.getNamedAttr(kind, b.getStringAttr(name)))};
}

Port tessera::autodiff::inputPort(StringRef name, RankedTensorType type) {
  return hostPort(graph::kInputAttr, name, type);
}

Port tessera::autodiff::outputPort(StringRef name, RankedTensorType type) {
  return hostPort(graph::kOutputAttr, name, type);
}

func::FuncOp tessera::autodiff::createProgram(OpBuilder &builder, Location loc,
                                              graph::Program kind,
                                              ArrayRef<Port> arguments,
                                              ArrayRef<Port> results) {
  SmallVector<Type> argumentTypes, resultTypes;
  for (const Port &port : arguments)
    argumentTypes.push_back(port.type);
  for (const Port &port : results)
    resultTypes.push_back(port.type);
  auto function = builder.create<func::FuncOp>(
      loc, graph::stringifyProgram(kind),
      builder.getFunctionType(argumentTypes, resultTypes));
  function->setAttr(graph::kProgramAttr,
                    graph::ProgramAttr::get(builder.getContext(), kind));
  for (auto [i, port] : llvm::enumerate(arguments))
    function.setArgAttrs(i, port.attrs);
  for (auto [i, port] : llvm::enumerate(results))
    function.setResultAttrs(i, port.attrs);
  function.addEntryBlock();
  return function;
}

SmallVector<Value> tessera::autodiff::inlineBody(OpBuilder &builder,
                                                 func::FuncOp function,
                                                 IRMapping &map) {
  Block &block = function.front();
  for (Operation &op : block.without_terminator())
    builder.clone(op, map);
  SmallVector<Value> results;
  for (Value value : block.getTerminator()->getOperands())
    results.push_back(map.lookup(value));
  return results;
}

Value tessera::autodiff::countTargets(OpBuilder &builder, Location loc,
                                      Value targets) {
  graph::Emitter e(builder, loc);
  Value counts = e.compare(targets, graph::ComparePredicate::ne,
                           e.splatLike(kIgnoredTarget, targets));
  return e.sumAll(e.convert(counts, builder.getI64Type()));
}

Value autodiff::countTerms(OpBuilder &builder, Location loc, func::FuncOp loss,
                           llvm::function_ref<Value(StringRef)> batch) {
  auto documents =
      loss->getAttrOfType<IntegerAttr>(graph::kDocumentsPerTermAttr);
  if (!documents)
    return countTargets(builder, loc, batch("targets"));
  graph::Emitter e(builder, loc);
  Value starts = batch("document_starts"), numbers = batch("document_numbers");
  RankedTensorType type = graph::tensorType(starts);
  // A document counts where it begins; padding has no number.
  Value begins = e.compare(e.iota(type, type.getRank() - 1),
                           graph::ComparePredicate::eq, starts);
  Value isNumbered =
      e.compare(numbers, graph::ComparePredicate::ge, e.splatLike(0, numbers));
  Value isCounted = e.binary<graph::AndOp>(begins, isNumbered);
  if (findInput(loss, "document_labels")) {
    Value labels = batch("document_labels");
    isCounted = e.binary<graph::AndOp>(
        isCounted,
        e.compare(labels, graph::ComparePredicate::ne, e.splatLike(0, labels)));
  }
  Value count = e.sumAll(e.convert(isCounted, builder.getI64Type()));
  return e.div(count,
               e.splatLike(static_cast<double>(documents.getInt()), count));
}

void autodiff::hoistInvariants(graph::LoopOp loop) {
  auto isOutside = [&](Value value) {
    return !loop.getBody().isAncestor(value.getParentRegion());
  };
  auto isWorthIt = [](Operation &op) {
    return isa<graph::ConvertOp>(op) ||
           (op.getNumOperands() > 0 &&
            llvm::all_of(op.getResults(), [](Value result) {
              return graph::tensorType(result).getRank() == 0;
            }));
  };
  for (Operation &op :
       llvm::make_early_inc_range(loop.getBody().front().without_terminator()))
    if (isPure(&op) && op.getNumRegions() == 0 &&
        llvm::all_of(op.getOperands(), isOutside) &&
        (isWorthIt(op) || op.getNumOperands() == 0))
      op.moveBefore(loop);
}
