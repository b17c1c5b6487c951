// An artifact for several ranks, with every table that only those have.
#pragma once
#include "test/runtime/artifact/TestArtifact.h"

namespace tessera::test {

inline CutT cut(std::uint64_t size, std::vector<std::uint32_t> axes = {}) {
  CutT cut;
  cut.size = size;
  cut.axes = std::move(axes);
  return cut;
}

inline DimCutT dimCut(std::vector<CutT> factors) {
  DimCutT dim;
  dim.factors = owned(std::move(factors));
  return dim;
}

inline MeshAxisT meshAxis(std::string name, std::uint32_t size) {
  MeshAxisT axis;
  axis.name = std::move(name);
  axis.size = size;
  return axis;
}

inline CollectiveT collective(CollectiveKind kind, ArgT from, ArgT to,
                              std::vector<std::uint64_t> counts = {},
                              std::vector<std::int32_t> targets = {}) {
  CollectiveT one;
  one.kind = kind;
  one.type = ElementType::f32;
  one.axes = {0};
  one.from = std::make_unique<ArgT>(std::move(from));
  one.to = std::make_unique<ArgT>(std::move(to));
  one.counts = std::move(counts);
  one.targets = std::move(targets);
  return one;
}

inline NodeT wait(std::uint32_t ticket) {
  WaitT wait;
  wait.ticket = ticket;
  return node(wait, "test.wait");
}

/// Three ranks in a row share f32[8,4] by its rows: ranks 0 and 1 have three,
/// rank 2 has two. The program "step" has an input "x" and an output "y" that
/// are cut so, and `parts`, which everybody gathers at 0 of the arena:
///   all = all_gather(x); all = all_reduce(all); y = reduce_scatter(all)
///   parts[24] = all_to_all(all[0:24]) at 128
///   moved[24] = permute(parts) at 256, from each rank to the next
///   moved = all_reduce(max)(moved), started
/// Its output "moved" is a copy of the last, "start" of "mesh.offsets".
inline ShareT meshShare(std::vector<std::uint32_t> ranks, std::int64_t rows) {
  const auto share = static_cast<std::uint64_t>(rows) * 16;
  const std::vector<std::uint64_t> counts = {12, 12, 8};
  const auto cutRows = [&](TensorT tensor) {
    tensor.cuts = owned<DimCutT>({dimCut({cut(8, {0})}), dimCut({cut(4)})});
    return tensor;
  };
  ShareT result;
  result.ranks = std::move(ranks);
  result.offsets = owned<CutT>({cut(8, {0})});
  result.state_bytes = 64;
  result.state = owned<TensorT>({cutRows(tensor(
      "w", ElementType::f32, {rows, 4}, Role::parameter, Space::state, 0))});
  CollectiveT last =
      collective(CollectiveKind::all_reduce, arg(Space::arena, 256, 96),
                 arg(Space::arena, 256, 96));
  last.reduction = Reduction::max;
  last.ticket = 7;
  const auto step = [](CollectiveT one) { return node(one, "test.together"); };
  const ArgT x = arg(Space::io, 0, share), y = arg(Space::io, 64, share),
             all = arg(Space::arena, 0, 128);
  DeviceCodeT code;
  code.device = "cpu";
  code.programs = owned<ProgramT>({program(
      "step", 352, 384,
      {cutRows(
           tensor("x", ElementType::f32, {rows, 4}, Role::input, Space::io, 0)),
       tensor("mesh.offsets", ElementType::i32, {1}, Role::input, Space::io,
              128)},
      {cutRows(tensor("y", ElementType::f32, {rows, 4}, Role::output, Space::io,
                      64)),
       tensor("moved", ElementType::f32, {24}, Role::output, Space::io, 192),
       tensor("start", ElementType::i32, {1}, Role::output, Space::io, 320)},
      {step(collective(CollectiveKind::all_gather, x, all, counts)),
       step(collective(CollectiveKind::all_reduce, all, all)),
       step(collective(CollectiveKind::reduce_scatter, all, y, counts)),
       step(collective(CollectiveKind::all_to_all, arg(Space::arena, 0, 96),
                       arg(Space::arena, 128, 96), {8, 8, 8})),
       step(collective(CollectiveKind::permute, arg(Space::arena, 128, 96),
                       arg(Space::arena, 256, 96), {}, {1, 2, -1})),
       step(last), copy(arg(Space::io, 128, 4), arg(Space::io, 320, 4)),
       wait(7), copy(arg(Space::arena, 256, 96), arg(Space::io, 192, 96))})});
  result.devices = owned<DeviceCodeT>({code});
  return result;
}

inline ArtifactT meshArtifact() {
  ArtifactT artifact = emptyArtifact();
  artifact.mesh = owned<MeshAxisT>({meshAxis("data", 3)});
  artifact.shares = owned<ShareT>({meshShare({0, 1}, 3), meshShare({2}, 2)});
  return artifact;
}

} // namespace tessera::test
