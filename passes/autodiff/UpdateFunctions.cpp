#include "passes/autodiff/UpdateFunctions.h"
#include "mlir/IR/SymbolTable.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;

// "adamw.decay.768x3072"
std::string UpdateFunctions::nameOf(RankedTensorType type, bool decay) const {
  std::string name = optimizer.name().str() + (decay ? ".decay" : "");
  for (auto [i, size] : llvm::enumerate(type.getShape()))
    name += (i ? "x" : ".") + std::to_string(size);
  return name;
}

func::FuncOp UpdateFunctions::get(RankedTensorType parameter, bool decay,
                                  TypeRange arguments) {
  std::string name = nameOf(parameter, decay);
  func::FuncOp &function = made[name];
  if (!function)
    function = make(name, parameter, decay, arguments);
  return function;
}

func::FuncOp UpdateFunctions::make(StringRef name, RankedTensorType type,
                                   bool decay, TypeRange arguments) {
  OpBuilder b(module.getContext());
  unsigned count = optimizer.momentSuffixes().size();
  SmallVector<Type> results(1 + count, type);
  auto function = func::FuncOp::create(module.getLoc(), name,
                                       b.getFunctionType(arguments, results));
  function.setPrivate();
  function->setAttr(graph::kBlockAttr, b.getUnitAttr());
  SymbolTable(module).insert(function);

  b.setInsertionPointToStart(function.addEntryBlock());
  graph::Emitter e(b, function.getLoc());
  ValueRange values = function.getArguments();
  Value scale = values[2 + count];
  Value gradient = e.mul(values[1], e.broadcastScalar(scale, type.getShape()));
  SmallVector<Value> updated =
      optimizer.update(e, values.drop_front(3 + count), values[0], gradient,
                       values.slice(2, count), decay);
  b.create<func::ReturnOp>(function.getLoc(), updated);
  return function;
}
