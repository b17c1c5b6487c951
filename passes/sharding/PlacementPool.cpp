#include "passes/sharding/PlacementPool.h"
#include "llvm/ADT/Hashing.h"

using namespace tessera::sharding;

static llvm::hash_code hashOf(llvm::ArrayRef<unsigned> axes) {
  return llvm::hash_combine_range(axes.begin(), axes.end());
}

size_t PlacementPool::Hash::operator()(const Placement &placement) const {
  llvm::hash_code code =
      llvm::hash_combine(hashOf(placement.partial), hashOf(placement.own),
                         placement.kind, placement.room);
  for (const DimPlacement &dim : placement.dims) {
    code = llvm::hash_combine(code, dim.size());
    for (const Factor &factor : dim)
      code = llvm::hash_combine(code, factor.size, hashOf(factor.axes));
  }
  return code;
}
