#include "compiler/api/AdapterSettings.h"
#include "runtime/weights/AdapterFile.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>

using namespace tessera;

// vLLM's default of --max-lora-rank.
static constexpr int64_t kUsualRank = 16;

StatusOr<std::vector<std::string>> AdapterSettings::keys() const {
  using Keys = std::vector<std::string>;
  if (!isUsed() && (rank > 0 || !targets.empty()))
    return Status::error("--adapter-rank and --adapter-target have no meaning "
                         "without --adapter or --adapter-slots");
  if (!isUsed())
    return Keys();
  std::vector<std::string> adapted = targets;
  int64_t most = 0;
  bool hasMagnitudes = false;
  for (const Given &each : given) {
    auto file = AdapterFile::open(each.directory);
    if (!file.ok())
      return file.status();
    most = std::max(most, file->rank());
    hasMagnitudes |= file->hasMagnitudes;
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
  if (adapted.empty())
    adapted = {"all"};
  std::ranges::sort(adapted);
  adapted.erase(std::ranges::unique(adapted).begin(), adapted.end());
  most = rank > 0 ? rank : most > 0 ? most : kUsualRank;
  return Keys{hasMagnitudes ? "adapter.kind=dora" : "adapter.kind=lora",
              fmt::format("adapter.rank={}", most),
              fmt::format("adapter.slots={}", std::max(slots, count)),
              fmt::format("adapter.target=[{}]", fmt::join(adapted, ", "))};
}

Status AdapterSettings::apply(ModelChoice &choice,
                              const std::optional<ModelSource> &source) const {
  auto set = keys();
  if (!set.ok() || set->empty())
    return set.status();
  if (!source)
    return Status::error("adapters are used with a model directory or a "
                         "packaged model, and '{}' is neither; export a run "
                         "first: tessera export",
                         choice.place);
  if (source->packaged && (rank > 0 || !targets.empty()))
    return Status::error("'{}' is compiled already, for some rank and layers; "
                         "leave out --adapter-rank and --adapter-target",
                         choice.place);
  // Before the user's own keys, which may override them. A packaged model has
  // the slots that it was compiled with.
  if (!source->packaged)
    choice.set.insert(choice.set.begin(), set->begin(), set->end());
  return Status::success();
}

Status tessera::readModel(OpenedModel &opened, ModelChoice choice,
                          const std::string &adapter) {
  auto source = findModel(choice.place);
  if (!source.ok())
    return source.status();
  return readModel(opened, std::move(choice), source.take(), adapter);
}

Status tessera::readModel(OpenedModel &opened, ModelChoice choice,
                          std::optional<ModelSource> source,
                          const std::string &adapter) {
  AdapterSettings settings;
  if (!adapter.empty())
    settings.given = {{adapter, adapter}};
  TESSERA_RETURN_IF_ERROR(settings.apply(choice, source));
  return opened.read(choice, std::move(source));
}

Status tessera::loadAdapter(const std::string &adapter, OpenedModel &opened) {
  auto file = AdapterFile::open(adapter);
  if (!file.ok())
    return file.status();
  if (adapterSlots(*opened.model) == 0)
    return Status::error(
        "'{}' was compiled without slots for adapters; compile "
        "it with --adapter-slots N",
        opened.folder);
  auto values = readAdapter(*file, *opened.model);
  return values.ok() ? writeAdapter(*values, *opened.model, /*slot=*/0)
                     : values.status();
}
