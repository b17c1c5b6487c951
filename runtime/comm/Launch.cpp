#include "runtime/comm/Launch.h"

#include "runtime/support/Text.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace tessera::comm {
namespace {

using Starter = Launch::Starter;

/// How one starter names things; empty: it does not say.
struct Names {
  Starter starter;
  const char *rank, *size, *localRank, *localSize;
};

constexpr Names kOpenMpi = {
    Starter::openMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kMpich = {Starter::mpich, "PMI_RANK", "PMI_SIZE",
                          "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Names kAddress = {Starter::address, "RANK", "WORLD_SIZE",
                            "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
// Of the step: in a batch script, outside of any srun, these are not set.
constexpr Names kSlurm = {Starter::slurm, "SLURM_PROCID",
                          "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""};

const char *starterName(Starter starter) {
  switch (starter) {
  case Starter::alone:
    return "no launcher";
  case Starter::openMpi:
    return "mpirun of Open MPI";
  case Starter::mpich:
    return "mpirun of MPICH";
  case Starter::address:
    return "RANK and WORLD_SIZE";
  case Starter::slurm:
    return "srun";
  }
  return "something unknown";
}

class Reader {
public:
  explicit Reader(const Environment &environment) : environment(environment) {}

  bool has(const char *name) const {
    const char *text = *name ? environment(name) : nullptr;
    return text && *text;
  }
  std::string_view text(const char *name) const {
    return has(name) ? environment(name) : std::string_view();
  }
  /// A number in [least, most].
  StatusOr<int> number(const char *name, int least, int most) const {
    const std::string_view from = text(name);
    int value = 0;
    const auto [end, failure] =
        std::from_chars(from.data(), from.data() + from.size(), value);
    if (failure != std::errc() || end != from.data() + from.size() ||
        value < least || value > most)
      return Status::error("the environment variable {} is {}, not a number "
                           "from {} to {}",
                           name, quote(from), least, most);
    return value;
  }
  /// As that starter says; nothing if it does not speak.
  StatusOr<std::optional<Launch>> read(const Names &names) const;

private:
  const Environment &environment;
};

constexpr int kMaxRanks = 1 << 20;

StatusOr<std::optional<Launch>> Reader::read(const Names &names) const {
  if (!has(names.rank) && !has(names.size))
    return std::optional<Launch>();
  for (const char *name : {names.rank, names.size})
    if (!has(name))
      return Status::error("the environment has {} and no {}: {} sets both",
                           has(names.rank) ? names.rank : names.size, name,
                           names.starter == Starter::address
                               ? "torchrun"
                               : starterName(names.starter));
  Launch launch;
  launch.starter = names.starter;
  StatusOr<int> size = number(names.size, 1, kMaxRanks);
  if (!size.ok())
    return size.status();
  StatusOr<int> rank = number(names.rank, 0, *size - 1);
  if (!rank.ok())
    return rank.status();
  launch.size = *size;
  launch.rank = *rank;
  const auto optional = [&](const char *name, int least, int most, int &to) {
    if (!has(name))
      return Status::success();
    StatusOr<int> value = number(name, least, most);
    if (value.ok())
      to = *value;
    return value.status();
  };
  TESSERA_RETURN_IF_ERROR(
      optional(names.localSize, 1, *size, launch.localSize));
  TESSERA_RETURN_IF_ERROR(
      optional(names.localRank, 0, *size - 1, launch.localRank));
  launch.localSize = std::max(launch.localSize, launch.localRank + 1);
  return std::optional<Launch>(launch);
}

Status checkAgreement(const Launch &launch, const Names &names,
                      const std::optional<Launch> &other,
                      const Names &otherNames) {
  if (!other)
    return Status::success();
  if (launch.rank == other->rank && launch.size == other->size)
    return Status::success();
  return Status::error(
      "the environment contradicts itself: {}={} {}={}, but {}={} {}={}: start "
      "with one of them, or unset what is left over",
      names.rank, launch.rank, names.size, launch.size, otherNames.rank,
      other->rank, otherNames.size, other->size);
}

} // namespace

std::string Launch::describe() const {
  if (starter == Starter::alone)
    return "one rank";
  return fmt::format("rank {} of {}, started by {}", rank, size,
                     starterName(starter));
}

StatusOr<Launch> readLaunch(const Environment &environment) {
  const Reader reader(environment);
  const Names *chosen = nullptr;
  std::optional<Launch> launch;
  for (const Names *names : {&kOpenMpi, &kMpich, &kAddress, &kSlurm}) {
    // mpirun and torchrun start their own ranks from within Slurm's. RANK alone
    // is a word that others use too.
    if ((names == &kSlurm && launch) ||
        (names->starter >= Starter::address && !reader.has(names->size)))
      continue;
    StatusOr<std::optional<Launch>> said = reader.read(*names);
    if (!said.ok())
      return said.status();
    if (launch) {
      TESSERA_RETURN_IF_ERROR(checkAgreement(*launch, *chosen, *said, *names));
    } else if (*said) {
      launch = *said;
      chosen = names;
    }
  }
  if (!launch)
    return Launch();
  if (launch->starter == Starter::slurm) {
    const std::string_view type = reader.text("SLURM_MPI_TYPE");
    if (type.starts_with("pmix"))
      launch->starter = Starter::openMpi;
    else if (type == "pmi2" || type == "cray_shasta")
      launch->starter = Starter::mpich;
  }
  launch->masterAddress = reader.text("MASTER_ADDR");
  if (reader.has("MASTER_PORT")) {
    StatusOr<int> port = reader.number("MASTER_PORT", 1, 65535);
    if (!port.ok())
      return port.status();
    // Where the agent of torchrun keeps that port to itself.
    const bool isTaken = reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    launch->masterPort = isTaken ? *port % 65535 + 1 : *port;
  }
  return *launch;
}

StatusOr<Launch> readLaunch() {
  return readLaunch([](const char *name) { return std::getenv(name); });
}

} // namespace tessera::comm
