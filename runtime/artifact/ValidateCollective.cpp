// Proofs about what ranks do together.
#include "runtime/artifact/Checker.h"

namespace tessera::artifact {
namespace {

class CollectiveChecker {
public:
  CollectiveChecker(ShareChecker &share, const Collective &collective)
      : share(share), checker(share.checker), collective(collective) {}
  Status run();

private:
  std::size_t counts() const {
    return collective.counts() ? collective.counts()->size() : 0;
  }
  std::size_t targets() const {
    return collective.targets() ? collective.targets()->size() : 0;
  }
  Status group();
  Status lists();
  Status counted(std::uint64_t all);
  Status own(std::uint64_t mine);
  Status permuted();
  Status exchanged();
  Status sameBytes();

  ShareChecker &share;
  Checker &checker;
  const Collective &collective;
  std::uint64_t members = 1, each = 1;
};

Status CollectiveChecker::group() {
  const auto &axes = *collective.axes();
  TESSERA_RETURN_IF_ERROR(share.axes(&collective, &axes));
  if (axes.size() == 0)
    return checker.fail(&collective, "over no axis");
  for (const std::uint32_t axis : axes)
    members *= checker.mesh->size(axis);
  return Status::success();
}

// Those that the kind takes, one entry for each member.
Status CollectiveChecker::lists() {
  const bool moves = collective.kind() == CollectiveKind::permute;
  const bool hasCounts = !moves &&
                         collective.kind() != CollectiveKind::all_reduce &&
                         collective.kind() != CollectiveKind::exchange_rows;
  const std::uint64_t wantedCounts = hasCounts ? members : 0,
                      wantedTargets = moves ? members : 0;
  if (counts() != wantedCounts)
    return checker.fail(&collective, "{} counts, but it takes {}", counts(),
                        wantedCounts);
  if (targets() != wantedTargets)
    return checker.fail(&collective, "{} targets, but it takes {}", targets(),
                        wantedTargets);
  const bool exchanges = collective.kind() == CollectiveKind::exchange_rows;
  if (exchanges != (collective.rows() != nullptr) ||
      exchanges != (collective.width() != 0))
    return checker.fail(&collective, "counts and width of rows, {}",
                        exchanges ? "which it lacks" : "but it exchanges none");
  if (!isAligned(collective.counts()) || !isAligned(collective.targets()))
    return checker.fail(&collective, "its counts or targets are misaligned");
  return Status::success();
}

// The counts add up to the bytes of the buffer with all members' elements.
Status CollectiveChecker::counted(std::uint64_t all) {
  std::uint64_t bytes = 0;
  for (const std::uint64_t count : *collective.counts()) {
    std::uint64_t more;
    if (__builtin_mul_overflow(count, each, &more) ||
        __builtin_add_overflow(bytes, more, &bytes))
      return checker.fail(&collective, "counts beyond memory");
  }
  if (bytes != all)
    return checker.fail(&collective, "counts of {} bytes for an argument of {}",
                        bytes, all);
  return Status::success();
}

// Every rank of the share has as much as its buffer takes.
Status CollectiveChecker::own(std::uint64_t mine) {
  const std::vector<std::uint32_t> *numbers = nullptr;
  TESSERA_RETURN_IF_ERROR(share.membersOf(*collective.axes(), numbers));
  for (const std::uint32_t member : *numbers)
    if (collective.counts()->Get(member) * each != mine)
      return checker.fail(&collective,
                          "member {} counts {} elements, its argument has {} "
                          "bytes",
                          member, collective.counts()->Get(member), mine);
  return Status::success();
}

Status CollectiveChecker::permuted() {
  std::vector<bool> gets(members);
  for (const std::int32_t target : *collective.targets()) {
    if (target == -1)
      continue;
    if (target < 0 || static_cast<std::uint64_t>(target) >= members ||
        gets[static_cast<std::size_t>(target)])
      return checker.fail(&collective,
                          "sends to member {} of {}, or to it twice", target,
                          members);
    gets[static_cast<std::size_t>(target)] = true;
  }
  return sameBytes();
}

// Whole rows on both sides, and two counts for each member, or four numbers for
// each of as many pieces for each. What they are is found out when it runs.
Status CollectiveChecker::exchanged() {
  std::uint64_t row;
  if (__builtin_mul_overflow(collective.width(), each, &row) ||
      collective.from()->bytes() % row || collective.to()->bytes() % row)
    return checker.fail(&collective,
                        "rows of {} elements in arguments of {} and {} bytes",
                        collective.width(), collective.from()->bytes(),
                        collective.to()->bytes());
  const std::uint64_t table = collective.rows()->bytes(),
                      number = sizeof(std::int32_t);
  if (table != 2 * members * number &&
      (table == 0 || table % (4 * members * number) != 0))
    return checker.fail(&collective, "counts of {} bytes for {} members",
                        collective.rows()->bytes(), members);
  return Status::success();
}

Status CollectiveChecker::sameBytes() {
  if (collective.from()->bytes() != collective.to()->bytes())
    return checker.fail(&collective, "sends {} bytes and gets {}",
                        collective.from()->bytes(), collective.to()->bytes());
  return Status::success();
}

Status CollectiveChecker::run() {
  if (!isKnown(collective.kind()) || !isKnown(collective.reduction()) ||
      !isKnown(collective.type()))
    return checker.fail(&collective, "unknown kind {}, reduction {} or type {}",
                        static_cast<int>(collective.kind()),
                        static_cast<int>(collective.reduction()),
                        static_cast<int>(collective.type()));
  each = elementBytes(collective.type());
  TESSERA_RETURN_IF_ERROR(group());
  TESSERA_RETURN_IF_ERROR(lists());
  const std::uint64_t from = collective.from()->bytes(),
                      to = collective.to()->bytes();
  if (from % each || to % each)
    return checker.fail(&collective, "an argument of {} or {} bytes for {}",
                        from, to, EnumNameElementType(collective.type()));
  switch (collective.kind()) {
  case CollectiveKind::all_reduce:
    return sameBytes();
  case CollectiveKind::all_gather:
    TESSERA_RETURN_IF_ERROR(counted(to));
    return own(from);
  case CollectiveKind::reduce_scatter:
    TESSERA_RETURN_IF_ERROR(counted(from));
    return own(to);
  case CollectiveKind::all_to_all:
    TESSERA_RETURN_IF_ERROR(counted(from));
    for (const std::uint64_t count : *collective.counts())
      if (count != collective.counts()->Get(0))
        return checker.fail(&collective, "an exchange of unequal pieces");
    return sameBytes();
  case CollectiveKind::permute:
    return permuted();
  case CollectiveKind::exchange_rows:
    return exchanged();
  }
  return Status::success();
}

} // namespace

Status validateCollective(ShareChecker &share, const Collective &collective) {
  return CollectiveChecker(share, collective).run();
}

} // namespace tessera::artifact
