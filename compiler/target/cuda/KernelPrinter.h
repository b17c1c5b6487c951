// Prints one kernel.
#pragma once
#include "compiler/target/cuda/CudaPrinter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

namespace tessera::cuda {

/// A piece of C++: its text, and how tightly its outermost operator binds.
struct Expression {
  enum Binding { atom, product, sum, shift, comparison, logic, choice };
  std::string text;
  Binding binding = atom;
};

/// `text` in parentheses unless it binds at least as tightly as `limit`.
std::string within(const Expression &expression, Expression::Binding limit);

/// "float", "int64_t", … of a scalar type.
llvm::StringRef typeName(mlir::Type element);

/// What a pure op on scalars computes of its operands' texts; nullopt where
/// there is no such form.
std::optional<Expression> printScalar(mlir::Operation *op,
                                      llvm::ArrayRef<Expression> operands,
                                      unsigned result);
/// The literal of a number.
Expression printNumber(mlir::Attribute value);

class KernelPrinter {
public:
  KernelPrinter(tile::KernelOp kernel, const TileTarget &target)
      : kernel(kernel), target(target) {}

  llvm::Error print();
  std::string text;
  KernelShape shape;

private:
  /// Where a memref's elements lie: base + offset + Σ index · stride.
  struct Memory {
    std::string base;
    Expression offset;
    llvm::SmallVector<Expression> strides;
    mlir::Value root; ///< the buffer or allocation
  };

  llvm::Error printHeader();
  llvm::Error printBlock(mlir::Block &block);
  llvm::Error printOp(mlir::Operation *op);
  llvm::Error printFor(mlir::scf::ForOp loop);
  llvm::Error printIf(mlir::scf::IfOp branch);
  llvm::Error assign(mlir::Operation *terminator,
                     llvm::ArrayRef<std::string> to);
  llvm::Error printLoad(tile::LoadOp op);
  llvm::Error printStore(tile::StoreOp op);
  llvm::Error printView(mlir::memref::ReinterpretCastOp op);
  llvm::Error printAlloc(tile::AllocOp op);
  llvm::Error printConstantTile(mlir::arith::ConstantOp op);
  llvm::Error printReduce(tile::ReduceOp op);
  llvm::Error printTile(mlir::Operation *op);

  // Values.
  bool isElementwise(mlir::Operation *op) const;
  bool isInlined(mlir::Operation *op) const;
  Expression scalar(mlir::Value value);
  /// What map is given: a function of elements and the tiles to take them of.
  struct Lambda {
    llvm::SmallVector<std::string> parameters, arguments;
    llvm::DenseMap<mlir::Value, std::string> seen; ///< parameter by value
  };
  Expression element(mlir::Value value, Lambda &lambda, bool isRoot);
  std::string tile(mlir::Value value);
  std::string typeOf(mlir::Type type) const;
  llvm::Expected<std::string> sizeOf(mlir::Type tile, mlir::Operation *op);
  std::string address(const Memory &memory, mlir::ValueRange indices);
  std::string access(const Memory &memory, mlir::ValueRange indices,
                     int64_t along, mlir::Value bound);

  // Text.
  std::string fresh(llvm::StringRef hint);
  void line(const llvm::Twine &code);
  void define(mlir::Value value, llvm::StringRef hint,
              const llvm::Twine &expression);
  llvm::Error unsupported(mlir::Operation *op, const llvm::Twine &why);
  void synchronize(mlir::Value root, bool writes);
  void synchronizeLoop(mlir::scf::ForOp loop);

  tile::KernelOp kernel;
  const TileTarget &target;
  unsigned depth = 1;
  llvm::StringMap<unsigned> names;
  llvm::DenseMap<mlir::Value, Expression> values;
  llvm::DenseMap<mlir::Value, Memory> memories;
  llvm::DenseSet<mlir::Value> written; ///< since the last barrier
};

} // namespace tessera::cuda
