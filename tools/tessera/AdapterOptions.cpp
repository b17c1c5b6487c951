#include "tools/tessera/AdapterOptions.h"
#include "runtime/weights/AdapterFile.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace tessera;

// Layers that slots adapt if no adapter is known yet: all linear ones.
static std::vector<std::string> allTargets(const models::ModelSpec &spec) {
  constexpr std::string_view suffix = ".weight";
  std::vector<std::string> names;
  for (const models::Parameter &each : models::parameters(spec)) {
    std::string_view path = each.name;
    if (each.layer < 0 || each.shape.size() != 2 || each.keepF32 ||
        !path.ends_with(suffix))
      continue;
    path.remove_suffix(suffix.size());
    names.emplace_back(path.substr(path.rfind('.') + 1));
  }
  return names;
}

// vLLM's default of --max-lora-rank.
static constexpr int64_t kUsualRank = 16;

Status AdapterSettings::apply(ModelChoice &choice,
                              const std::optional<ModelSource> &source) const {
  if (!isUsed())
    return rank == 0 && targets.empty()
               ? Status::success()
               : Status::error("--adapter-rank and --adapter-target have no "
                               "meaning without --adapter or --adapter-slots");
  if (!source)
    return Status::error("adapters are used with a model directory or a "
                         "packaged model, and '{}' is neither; export a run "
                         "first: tessera export",
                         choice.place);
  std::vector<std::string> adapted = targets;
  int64_t most = 0;
  for (const Given &each : given) {
    auto file = AdapterFile::open(each.directory);
    if (!file.ok())
      return file.status();
    most = std::max(most, file->rank());
    if (rank > 0 && file->rank() > rank)
      return Status::error("'{}' has rank {}, more than --adapter-rank {}",
                           each.directory, file->rank(), rank);
    if (targets.empty())
      std::ranges::copy(file->targets(), std::back_inserter(adapted));
  }
  const auto count = int64_t(given.size());
  if (slots > 0 && count > slots)
    return Status::error("{} adapters are more than --adapter-slots {}", count,
                         slots);
  if (source->packaged)
    return Status::success();
  if (adapted.empty())
    adapted = allTargets(source->spec);
  std::ranges::sort(adapted);
  adapted.erase(std::ranges::unique(adapted).begin(), adapted.end());
  most = rank > 0 ? rank : most > 0 ? most : kUsualRank;
  // Before the user's own keys, which may override them.
  choice.set.insert(
      choice.set.begin(),
      {"adapter.kind=lora", fmt::format("adapter.rank={}", most),
       fmt::format("adapter.slots={}", std::max(slots, count)),
       fmt::format("adapter.target=[{}]", fmt::join(adapted, ", "))});
  return Status::success();
}

void tessera::addAdapterSlotOptions(CLI::App &command,
                                    AdapterSettings &settings,
                                    const std::string &slotsHelp) {
  command.add_option("--adapter-slots", settings.slots, slotsHelp)
      ->check(CLI::Range(1, 1 << 12))
      ->type_name("N");
  command
      .add_option("--adapter-rank", settings.rank,
                  "largest rank of an adapter (default: the largest given one, "
                  "or 16)")
      ->check(CLI::Range(1, 1 << 16))
      ->type_name("N");
  command
      .add_option("--adapter-target", settings.targets,
                  "linear layers that adapters may change, by the last part of "
                  "their names, such as q_proj,v_proj (default: those of the "
                  "given adapters, or all)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAMES");
}
