// What ranks do together, compared over the programs of all shares: those were
// compiled apart, and a collective that one of them starts in another order or
// with another size would only be noticed by a watchdog.
#include "compiler/artifact/CheckCollectives.h"
#include "dialects/dist/DistOps.h"
#include "dialects/plan/PlanOps.h"
#include "passes/sharding/Placement.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/raw_ostream.h"
#include <map>

using namespace mlir;
using namespace tessera;

namespace {
/// A collective, or a loop that holds some, of one program.
struct Entry {
  ArrayAttr axes;   ///< null: a loop
  std::string what; ///< as all shares have it
  std::string size; ///< as all members of one group have it
  bool isExchange = false;
};
} // namespace

static void print(llvm::raw_ostream &out, ArrayRef<int64_t> numbers) {
  out << "[";
  llvm::interleaveComma(numbers, out);
  out << "]";
}

static Entry describe(plan::CollectiveOp op) {
  Entry entry{op.getAxes(), {}, {}};
  entry.isExchange = op.getKind() == plan::CollectiveKind::permute;
  llvm::raw_string_ostream what(entry.what), size(entry.size);
  auto type = cast<MemRefType>(op.getFrom().getType());
  what << stringifyCollectiveKind(op.getKind());
  if (op.getReduction())
    what << " by " << stringifyReduction(*op.getReduction());
  what << " of " << type.getElementType() << " over " << op.getAxes();
  if (op.getKind() == plan::CollectiveKind::all_reduce)
    size << type.getNumElements() << " elements";
  else if (op.getCounts())
    print(size << "counts ", *op.getCounts());
  else if (op.getTargets())
    print(size << "targets ", *op.getTargets());
  else if (op.getRows())
    size << "rows of " << type.getDimSize(1) << " elements";
  return entry;
}

static void collect(Block &block, std::vector<Entry> &entries) {
  for (Operation &op : block) {
    if (auto collective = dyn_cast<plan::CollectiveOp>(op)) {
      entries.push_back(describe(collective));
    } else if (auto loop = dyn_cast<plan::LoopOp>(op)) {
      size_t before = entries.size();
      entries.push_back(
          {{}, "a loop of " + std::to_string(loop.getTrip()), {}, false});
      collect(loop.getBody().front(), entries);
      if (entries.size() == before + 1)
        entries.pop_back(); // of none
    }
  }
}

static llvm::Error makeError(StringRef program, size_t number, int64_t rank,
                             StringRef one, int64_t otherRank,
                             StringRef other) {
  return llvm::createStringError(
      "%s: collective %zu is %s for rank %lld and %s for rank %lld; ranks must "
      "do the same in one order, compile with --dump-ir and compare the dumps "
      "of schedule",
      program.str().c_str(), number, one.str().c_str(),
      static_cast<long long>(rank), other.str().c_str(),
      static_cast<long long>(otherRank));
}

// What names the group of `rank` along the axes: its coordinates elsewhere.
static sharding::Coordinates groupOf(const sharding::Mesh &mesh, ArrayAttr axes,
                                     int64_t rank) {
  sharding::Coordinates at = mesh.coordinatesOf(rank);
  for (auto name : axes.getAsRange<StringAttr>())
    if (std::optional<unsigned> axis = mesh.find(name.getValue()))
      at[*axis] = 0;
  return at;
}

// Where the share's ranks stand along the axis of pipelines.
static int64_t stageOf(const SharePart &share, const sharding::Mesh &mesh) {
  std::optional<unsigned> pipe = mesh.find(dist::kPipeAxis);
  return pipe ? mesh.coordinatesOf(share.ranks.front())[*pipe] : 0;
}

// What stages of a pipeline do together, exchanges aside: those are two ranks'
// affair, and the schedule's.
static void keepOverPipe(std::vector<Entry> &entries) {
  llvm::erase_if(entries, [](const Entry &entry) {
    bool overPipe =
        entry.axes && llvm::any_of(entry.axes, [](Attribute name) {
          return cast<StringAttr>(name).getValue() == dist::kPipeAxis;
        });
    return !overPipe || entry.isExchange;
  });
}

static llvm::Error compare(StringRef program, ArrayRef<SharePart> shares,
                           ArrayRef<std::vector<Entry>> all,
                           const sharding::Mesh &mesh) {
  auto nameAt = [&](size_t share, size_t i) -> StringRef {
    return i < all[share].size() ? StringRef(all[share][i].what) : "none";
  };
  size_t most = 0;
  for (const std::vector<Entry> &entries : all)
    most = std::max(most, entries.size());
  for (size_t i = 0; i < most; ++i) {
    for (size_t share = 1; share < all.size(); ++share)
      if (nameAt(share, i) != nameAt(0, i))
        return makeError(program, i, shares[0].ranks.front(), nameAt(0, i),
                         shares[share].ranks.front(), nameAt(share, i));
    if (!all[0][i].axes)
      continue;
    std::map<sharding::Coordinates, std::pair<int64_t, StringRef>> sizes;
    for (size_t share = 0; share < all.size(); ++share)
      for (int64_t rank : shares[share].ranks) {
        StringRef size = all[share][i].size;
        auto [known, isNew] = sizes.try_emplace(
            groupOf(mesh, all[share][i].axes, rank), rank, size);
        if (known->second.second != size)
          return makeError(program, i, known->second.first,
                           all[0][i].what + ", " + known->second.second.str(),
                           rank, all[0][i].what + ", " + size.str());
      }
  }
  return llvm::Error::success();
}

// One program of all shares: within each stage of a pipeline all of it, between
// stages what they do together.
static llvm::Error check(StringRef program, ArrayRef<SharePart> shares,
                         MutableArrayRef<std::vector<Entry>> all,
                         const sharding::Mesh &mesh) {
  std::map<int64_t,
           std::pair<std::vector<SharePart>, std::vector<std::vector<Entry>>>>
      stages;
  for (auto [share, entries] : llvm::zip(shares, all)) {
    auto &[members, lists] = stages[stageOf(share, mesh)];
    members.push_back(share);
    lists.push_back(entries);
    keepOverPipe(entries);
  }
  for (const auto &[stage, part] : stages)
    if (llvm::Error error = compare(program, part.first, part.second, mesh))
      return error;
  return stages.size() == 1 ? llvm::Error::success()
                            : compare(program, shares, all, mesh);
}

llvm::Error tessera::checkCollectives(ArrayRef<SharePart> shares) {
  ModuleOp first = shares.front().devices.front().module;
  auto meshes = first.getOps<dist::MeshOp>();
  if (meshes.empty() || shares.size() < 2)
    return llvm::Error::success();
  const sharding::Mesh mesh(*meshes.begin());
  for (auto program : first.getOps<plan::ProgramOp>()) {
    std::vector<std::vector<Entry>> all;
    for (const SharePart &share : shares) {
      ModuleOp module = share.devices.front().module;
      std::vector<Entry> &entries = all.emplace_back();
      if (auto same =
              module.lookupSymbol<plan::ProgramOp>(program.getSymName()))
        collect(same.getBody().front(), entries);
    }
    if (llvm::Error error = check(program.getSymName(), shares, all, mesh))
      return error;
  }
  return llvm::Error::success();
}
