// The parsed equation of a graph.einsum.
#pragma once
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace tessera::graph {

/// "lhs,rhs->out": one lower-case label a dimension.
struct Einsum {
  std::string lhs, rhs, out;

  /// Parses and checks the labels (see graph.einsum); the error says what is
  /// wrong.
  static llvm::Expected<Einsum> parse(llvm::StringRef equation);

  std::string str() const { return lhs + "," + rhs + "->" + out; }

  // Dimensions by role, in the order of the first term named.
  std::string batch() const;   // lhs, rhs and out (order of out)
  std::string rows() const;    // lhs and out only (order of out)
  std::string columns() const; // rhs and out only (order of out)
  std::string summed() const;  // lhs and rhs only (order of lhs)

  /// Size of the dimension named `label`.
  static int64_t sizeOf(char label, llvm::StringRef term,
                        llvm::ArrayRef<int64_t> shape) {
    return shape[term.find(label)];
  }
};

} // namespace tessera::graph
