// The pass narrow-embeddings: rows of a table that will be gathered from shards
// are looked up in its copy, so that half of the bytes are sent.
#include "dialects/graph/Constants.h"
#include "dialects/graph/GraphOps.h"
#include "passes/sharding/Sharding.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_NARROWEMBEDDINGS
#include "passes/sharding/Passes.h.inc"
} // namespace tessera

// The only user of the rows, if it rounds them.
static graph::ConvertOp roundingOf(graph::EmbeddingOp rows) {
  if (!rows->hasOneUse())
    return {};
  auto convert = dyn_cast<graph::ConvertOp>(*rows->user_begin());
  if (!convert ||
      graph::tensorType(convert.getResult()).getElementTypeBitWidth() >=
          graph::tensorType(convert.getInput()).getElementTypeBitWidth())
    return {};
  return convert;
}

// The table in the element type `element`, computed at the program's start: the
// copy that other ops read already, if there is one.
static Value copyOf(BlockArgument table, Type element, Location loc) {
  OpBuilder b = OpBuilder::atBlockBegin(table.getOwner());
  auto type = graph::tensorType(table).clone(element);
  for (Operation *user : table.getUsers())
    if (auto copy = dyn_cast<graph::ConvertOp>(user);
        copy && copy.getType() == type && copy->getBlock() == b.getBlock()) {
      copy->moveBefore(b.getBlock(), b.getBlock()->begin());
      return copy;
    }
  return b.create<graph::ConvertOp>(loc, type, table);
}

namespace {
struct NarrowEmbeddings
    : tessera::impl::NarrowEmbeddingsBase<NarrowEmbeddings> {
  void runOnOperation() override {
    SmallVector<graph::EmbeddingOp> lookups;
    getOperation().walk([&](graph::EmbeddingOp rows) {
      auto table = dyn_cast<BlockArgument>(rows.getTable());
      auto function =
          table ? dyn_cast<func::FuncOp>(table.getOwner()->getParentOp())
                : func::FuncOp();
      if (function && function.isPublic() && roundingOf(rows))
        lookups.push_back(rows);
    });
    for (graph::EmbeddingOp rows : lookups) {
      graph::ConvertOp rounded = roundingOf(rows);
      Value table = copyOf(cast<BlockArgument>(rows.getTable()),
                           rounded.getType().getElementType(), rows.getLoc());
      OpBuilder b(rows);
      auto narrow =
          b.create<graph::EmbeddingOp>(rows.getLoc(), table, rows.getIds());
      narrow->setDiscardableAttrs(rows->getDiscardableAttrDictionary());
      rounded.replaceAllUsesWith(narrow.getResult());
      rounded.erase();
      rows.erase();
    }
  }
};
} // namespace
