// Seeds to modules, and modules to inputs.
#include "test/metamorphic/Generate.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "test/metamorphic/Generator.h"
#include "test/metamorphic/Rounding.h"
#include <cmath>

using namespace mlir;

namespace tessera::metamorphic {

Kind kindOf(uint64_t seed) {
  uint64_t turn = seed % 16;
  return turn < 12   ? Kind::kernels
         : turn < 14 ? Kind::mixed
                     : Kind::interpreter;
}

void loadDialects(MLIRContext &context) {
  context.loadDialect<graph::GraphDialect, func::FuncDialect,
                      arith::ArithDialect, math::MathDialect>();
}

OwningOpRef<ModuleOp> generate(MLIRContext *context, uint64_t seed) {
  loadDialects(*context);
  OwningOpRef<ModuleOp> module = Generator(context, seed).run();
  Builder builder(context);
  if (kindOf(seed) == Kind::mixed)
    (*module)->setAttr(kComputeAttr, builder.getStringAttr("bf16"));
  // What compilers cut only in large models.
  if (seed % 3 == 0)
    (*module)->setAttr(kChunkBytesAttr, builder.getI64IntegerAttr(2048));
  return module;
}

// The values that an argument takes.
static Interval rangeOf(func::FuncOp function, unsigned i) {
  if (auto range = function.getArgAttrOfType<DenseF64ArrayAttr>(i, kRangeAttr);
      range && range.size() == 2)
    return {range[0], range[1]};
  Type element = graph::tensorType(function.getArgument(i)).getElementType();
  return isa<IntegerType>(element) ? Interval{0, 1} : around(1);
}

interpreter::Tensors makeInputs(ModuleOp module) {
  auto function = module.lookupSymbol<func::FuncOp>("f");
  auto seed = module->getAttrOfType<IntegerAttr>(kSeedAttr);
  std::mt19937_64 engine(seed ? seed.getInt() : 0);
  auto unit = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
  interpreter::Tensors inputs;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    RankedTensorType type = graph::tensorType(function.getArgument(i));
    Type element = type.getElementType();
    auto [low, high] = rangeOf(function, i);
    interpreter::Tensor tensor(type.getShape());
    for (double &value : tensor.data) {
      if (isa<IntegerType>(element)) {
        value = std::min(low + std::floor(unit() * (high - low + 1)), high);
        continue;
      }
      value = low + unit() * (high - low);
      // Equal numbers, and the ends, are where maxima and comparisons differ.
      if (engine() % 8 == 0)
        value = std::clamp(std::round(value), low, high);
      value = rounded(value, element);
    }
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

} // namespace tessera::metamorphic
