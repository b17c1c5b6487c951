// Proofs about the mesh and the shares of its ranks.
#include "runtime/artifact/Checker.h"

#include <limits>

namespace tessera::artifact {

Status ShareChecker::axes(const void *where,
                          const flatbuffers::Vector<std::uint32_t> *axes) {
  if (!isAligned(axes))
    return checker.fail(where, "its axes are misaligned");
  if (!axes)
    return Status::success();
  std::vector<bool> used(checker.mesh->axes());
  for (const std::uint32_t axis : *axes) {
    if (axis >= used.size())
      return checker.fail(where, "axis {}, but the mesh has {}", axis,
                          used.size());
    if (used[axis])
      return checker.fail(where, "axis {} twice", axis);
    used[axis] = true;
  }
  return Status::success();
}

Status ShareChecker::sizeOf(const Cut &cut, std::uint64_t &size) {
  const Mesh &mesh = *checker.mesh;
  Axes axes;
  std::uint64_t devices = 1;
  if (cut.axes())
    for (const std::uint32_t axis : *cut.axes()) {
      axes.push_back(axis);
      devices *= mesh.size(axis);
    }
  size = cut.size() / devices;
  if (cut.size() % devices == 0) // all have as much
    return Status::success();
  const auto [entry, isNew] = sizes.try_emplace({cut.size(), axes}, 0);
  if (isNew) {
    const auto &ranks = *share.ranks();
    if (!checker.lookAtRanks(ranks.size()))
      return checker.fail(&cut, "too many different cuts for so many ranks");
    entry->second = rangeAt(cut, mesh, mesh.coordinatesOf(ranks.Get(0))).size;
    for (const std::uint32_t rank : ranks)
      if (rangeAt(cut, mesh, mesh.coordinatesOf(rank)).size != entry->second)
        return checker.fail(&cut,
                            "of {} elements rank {} has not as many as rank "
                            "{}, with whom it shares a program",
                            cut.size(), rank, ranks.Get(0));
  }
  size = entry->second;
  return Status::success();
}

Status ShareChecker::membersOf(const flatbuffers::Vector<std::uint32_t> &axes,
                               const std::vector<std::uint32_t> *&numbers) {
  const Mesh &mesh = *checker.mesh;
  const auto [entry, isNew] =
      members.try_emplace(Axes(axes.begin(), axes.end()));
  numbers = &entry->second;
  if (!isNew)
    return Status::success();
  if (!checker.lookAtRanks(share.ranks()->size()))
    return checker.fail(&axes, "too many different groups of so many ranks");
  std::vector<std::uint32_t> &found = entry->second;
  for (const std::uint32_t rank : *share.ranks()) {
    const Coordinates at = mesh.coordinatesOf(rank);
    std::uint32_t member = 0;
    for (const std::uint32_t axis : axes)
      member = member * mesh.size(axis) + at[axis];
    found.push_back(member);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return Status::success();
}

namespace {

Status checkAxes(Checker &checker) {
  const auto *axes = checker.artifact.mesh();
  if (!axes)
    return Status::success();
  if (axes->size() > kMaxMeshAxes)
    return checker.fail(axes, "a mesh of {} axes exceeds {}", axes->size(),
                        kMaxMeshAxes);
  std::uint64_t ranks = 1;
  for (const MeshAxis *axis : *axes) {
    if (!isName(toView(axis->name())))
      return checker.fail(axis, "an axis's name is empty, too long or not "
                                "plain ASCII");
    ranks *= axis->size(); // at most 2^52: the product was in bounds
    if (ranks == 0 || ranks > kMaxRanks)
      return checker.fail(axis,
                          "a mesh of {} ranks or more: 1 to {} are "
                          "possible",
                          ranks, kMaxRanks);
  }
  return checkUnique(checker, *axes, "mesh axis",
                     [](const MeshAxis &axis) { return toView(axis.name()); });
}

bool sameCuts(const Tensor &a, const Tensor &b) {
  if (!a.cuts() || !b.cuts())
    return a.cuts() == b.cuts();
  const auto list = [](const auto *vector) {
    return vector ? std::vector<std::uint32_t>(vector->begin(), vector->end())
                  : std::vector<std::uint32_t>();
  };
  return std::equal(a.cuts()->begin(), a.cuts()->end(), b.cuts()->begin(),
                    b.cuts()->end(), [&](const DimCut *x, const DimCut *y) {
                      return std::equal(
                          x->factors()->begin(), x->factors()->end(),
                          y->factors()->begin(), y->factors()->end(),
                          [&](const Cut *p, const Cut *q) {
                            return p->size() == q->size() &&
                                   list(p->axes()) == list(q->axes());
                          });
                    });
}

// A rank of a pipeline has the state of its own stages.
Status checkState(Checker &checker, const Share &share) {
  for (const Tensor *tensor : *share.state()) {
    auto &known = checker.stateByName[toView(tensor->name())];
    if (!known.empty() && !isSameTensor(*known.front().first, *tensor))
      return checker.fail(tensor,
                          "share of rank {}: its state tensor '{}' is not "
                          "that of rank {}",
                          share.ranks()->Get(0), toView(tensor->name()),
                          known.front().second->ranks()->Get(0));
    known.emplace_back(tensor, &share);
  }
  return Status::success();
}

template <typename List> bool sameTensors(const List &a, const List &b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(),
      [](const Tensor *x, const Tensor *y) { return isSameTensor(*x, *y); });
}

} // namespace

bool isSameTensor(const Tensor &a, const Tensor &b) {
  return toView(a.name()) == toView(b.name()) && a.type() == b.type() &&
         a.role() == b.role() && a.decay() == b.decay() && sameCuts(a, b) &&
         globalShape(a) == globalShape(b);
}

Status validateMesh(Checker &checker) {
  const Artifact &artifact = checker.artifact;
  TESSERA_RETURN_IF_ERROR(checkAxes(checker));
  checker.mesh.emplace(artifact);
  std::vector<bool> known(checker.mesh->ranks());
  std::size_t count = 0;
  for (const Share *share : *artifact.shares()) {
    if (!isAligned(share->ranks()))
      return checker.fail(share, "a share's ranks are misaligned");
    if (share->ranks()->size() == 0)
      return checker.fail(share, "a share of no rank");
    std::uint64_t next = 0;
    for (const std::uint32_t rank : *share->ranks()) {
      if (rank >= known.size())
        return checker.fail(share, "a share of rank {} of {}", rank,
                            known.size());
      if (rank < next || known[rank])
        return checker.fail(share, "rank {} stands twice, or out of order",
                            rank);
      known[rank] = true;
      next = rank + 1;
      ++count;
    }
  }
  if (count != known.size())
    return checker.fail(&artifact, "rank {} is in no share",
                        std::find(known.begin(), known.end(), false) -
                            known.begin());
  return Status::success();
}

Status validateOffsets(ShareChecker &share) {
  if (!share.share.offsets())
    return Status::success();
  for (const Cut *cut : *share.share.offsets()) {
    TESSERA_RETURN_IF_ERROR(share.axes(cut, cut->axes()));
    if (cut->size() > std::numeric_limits<std::int32_t>::max())
      return share.checker.fail(cut, "an offset in {} elements is no i32",
                                cut->size());
  }
  return Status::success();
}

Status validateAgreement(Checker &checker, const Share &first,
                         const Share &other) {
  const auto fail = [&](const void *where, std::string_view what) {
    return checker.fail(where, "share of rank {}: {} not those of rank {}",
                        other.ranks()->Get(0), what, first.ranks()->Get(0));
  };
  TESSERA_RETURN_IF_ERROR(checkState(checker, other));
  if (first.devices()->size() != other.devices()->size())
    return fail(&other, "its devices are");
  for (flatbuffers::uoffset_t d = 0; d < other.devices()->size(); ++d) {
    const DeviceCode &a = *first.devices()->Get(d),
                     &b = *other.devices()->Get(d);
    if (toView(a.device()) != toView(b.device()) ||
        a.programs()->size() != b.programs()->size())
      return fail(&b, "its devices or their programs are");
    for (flatbuffers::uoffset_t p = 0; p < b.programs()->size(); ++p) {
      const Program &x = *a.programs()->Get(p), &y = *b.programs()->Get(p);
      if (toView(x.name()) != toView(y.name()) ||
          !sameTensors(*x.inputs(), *y.inputs()) ||
          !sameTensors(*x.outputs(), *y.outputs()))
        return fail(&y, "its programs, or their inputs and outputs, are");
    }
  }
  return Status::success();
}

Status validateWholeState(Checker &checker) {
  const Mesh &mesh = *checker.mesh;
  for (const auto &[name, known] : checker.stateByName) {
    if (known.size() == checker.artifact.shares()->size())
      continue;
    const Tensor &tensor = *known.front().first;
    if (!checker.lookAtRanks(mesh.ranks()))
      return checker.fail(&tensor, "too many state tensors that not all of so "
                                   "many ranks have");
    std::vector<bool> isHolder(mesh.ranks());
    for (const auto &[own, share] : known)
      for (const std::uint32_t rank : *share->ranks())
        isHolder[rank] = true;
    std::uint64_t whole = 1, found = 0;
    for (const std::uint64_t size : globalShape(tensor))
      whole *= size;
    for (const std::uint32_t rank : firstHolders(tensor, mesh, isHolder))
      found += elementsOfShare(tensor, mesh, mesh.coordinatesOf(rank));
    if (found != whole)
      return checker.fail(&tensor,
                          "of the state tensor '{}' ranks have {} of {} "
                          "elements",
                          name, found, whole);
  }
  return Status::success();
}

} // namespace tessera::artifact
