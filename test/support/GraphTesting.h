// What C++ tests of graph IR share: parsing, random inputs, running functions.
#pragma once
#include "compiler/interpreter/Interpreter.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include <gtest/gtest.h>
#include <random>
#include <string>

namespace tessera::testing {

using interpreter::Tensor;
using interpreter::Tensors;

/// A context that knows graph, func, arith and math.
inline mlir::MLIRContext &context() {
  static auto *context = [] {
    auto *context =
        new mlir::MLIRContext(mlir::MLIRContext::Threading::DISABLED);
    context->loadDialect<graph::GraphDialect, mlir::func::FuncDialect,
                         mlir::arith::ArithDialect, mlir::math::MathDialect>();
    return context;
  }();
  return *context;
}

/// Parses and verifies; null (and a diagnostic on stderr) if that fails.
inline mlir::OwningOpRef<mlir::ModuleOp> parse(llvm::StringRef text) {
  return mlir::parseSourceString<mlir::ModuleOp>(text, &context());
}

/// `text` with every "$T" replaced by `type`.
inline std::string withType(std::string text, llvm::StringRef type) {
  for (size_t at; (at = text.find("$T")) != std::string::npos;)
    text.replace(at, 2, type.str());
  return text;
}

/// Uniform elements in [low, high); integer ones for integer types.
inline Tensor randomTensor(mlir::RankedTensorType type, double low, double high,
                           std::mt19937_64 &engine) {
  Tensor tensor(type.getShape());
  std::uniform_real_distribution<double> uniform(low, high);
  bool isInteger = mlir::isa<mlir::IntegerType>(type.getElementType());
  for (double &value : tensor.data)
    value = isInteger ? std::floor(uniform(engine)) : uniform(engine);
  return tensor;
}

/// An f64 tensor with uniform elements in [low, high).
inline Tensor draw(llvm::ArrayRef<int64_t> shape, unsigned seed,
                   double low = -2, double high = 2) {
  std::mt19937_64 engine(seed);
  auto f64 = mlir::Float64Type::get(&context());
  return randomTensor(mlir::RankedTensorType::get(shape, f64), low, high,
                      engine);
}

/// The results of the function @f of `text`; none, and a failure of the running
/// test, if it cannot be parsed or run.
inline Tensors evaluate(const std::string &text,
                        llvm::ArrayRef<Tensor> inputs) {
  mlir::OwningOpRef<mlir::ModuleOp> module = parse(text);
  if (!module) {
    ADD_FAILURE() << text;
    return {};
  }
  llvm::Expected<Tensors> results =
      interpreter::interpret(*module, "f", inputs);
  if (!results) {
    ADD_FAILURE() << llvm::toString(results.takeError());
    return {};
  }
  return *results;
}

} // namespace tessera::testing
