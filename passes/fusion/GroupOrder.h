// A topological order of groups that is maintained while they merge, so that a
// search for a path looks only at what is between its ends (after Pearce and
// Kelly 2006).
#pragma once
#include "mlir/Support/LLVM.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <vector>

namespace tessera {

class GroupOrder {
public:
  /// Calls back for each group that `id` reads from; itself may be among them.
  using Producers = llvm::function_ref<void(
      unsigned id, llvm::function_ref<void(unsigned)> use)>;

  /// A new group after all others; ids count from 0.
  void append();
  /// Whether no path leads from b to a.
  bool mayPrecede(unsigned a, unsigned b) const {
    return positions[a] < positions[b];
  }
  /// `other` becomes a part of `id`; no path leads from one to the other
  /// through a third. Groups between them that the earlier one reaches are
  /// moved after both. `producers` still tells the two apart.
  void merge(unsigned id, unsigned other, Producers producers);
  /// The next `count` ids replace `id`, in their order.
  void replace(unsigned id, unsigned count);

private:
  void place(unsigned id, size_t at);

  std::vector<unsigned> ids;     ///< by position; kNone if merged
  std::vector<size_t> positions; ///< by id
  static constexpr unsigned kNone = ~0u;
};

} // namespace tessera
