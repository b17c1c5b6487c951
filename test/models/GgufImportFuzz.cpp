// libFuzzer target: whatever a GGUF file says, it becomes a config.json, a
// tokenizer.json and parameters that our readers take, or is refused with one
// line.
#include "models/HfConfig.h"
#include "models/gguf/GgufConfig.h"
#include "models/gguf/GgufModel.h"
#include "models/gguf/GgufTokenizer.h"
#include "models/gguf/GgufWeights.h"
#include "runtime/weights/PackGgufBlocks.h"

#include <cstdlib>

using namespace tessera;
using namespace tessera::models;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

template <typename T> static bool good(const StatusOr<T> &result) {
  require(result.ok() || (!result.message().empty() &&
                          result.message().find('\n') == std::string::npos));
  return result.ok();
}

namespace {
class Counter final : public SafetensorsSink {
public:
  Status write(std::span<const std::byte> bytes) override {
    count += bytes.size();
    return Status::success();
  }
  uint64_t count = 0;
};
} // namespace

/// Blocks that kernels read as they are, in the first micropanel.
static void packFirst(const GgufRows &rows) {
  const auto layout = layoutOfBlocks(rows.tensor->type, int64_t(rows.rows),
                                     int64_t(rows.columns));
  if (!layout)
    return;
  std::vector<uint32_t> words(layout->words() * kMicropanel);
  std::vector<uint16_t> scales(layout->scaleRows() * kMicropanel *
                               layout->scaleBytes() / 2);
  std::vector<std::byte> blocks(rows.rowBytes());
  for (int64_t row = 0; row < std::min(kMicropanel, layout->rows); ++row) {
    require(rows.readBlocks(row, blocks).ok());
    packBlocks(rows.tensor->type, *layout, blocks, row, words, scales);
  }
}

/// As inference has it: config.json with the layouts of matrices, and tensors
/// whose bytes are read anywhere.
static void readModel(std::shared_ptr<const GgufFile> file) {
  auto model = ggufModel(std::move(file));
  if (!good(model))
    return;
  require(good(loadedConfig(model->files)));
  auto weights = model->weights.open();
  require(good(weights));
  for (const auto &[name, location] : (*weights)->tensors()) {
    const SafetensorsEntry &entry = *location.entry;
    const uint64_t all = entry.end - entry.begin, from = all / 8 * 4;
    std::vector<std::byte> bytes(all - from);
    require(location.file->read(entry, from, bytes).ok());
    packFirst(*entry.source->gguf());
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, std::size_t size) {
  auto file = GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!good(file))
    return 0;
  GgufKeys keys(*file);
  std::string_view architecture;
  auto config = ggufConfig(keys);
  keys.get("general.architecture", architecture);
  GgufKeys others(*file);
  auto tokenizer = ggufTokenizer(others, architecture);
  good(tokenizer);
  if (!good(config))
    return 0;
  auto spec = parseHfConfig(config->dump(), "fuzz");
  if (!good(spec))
    return 0;
  auto weights = ggufWeights(*file, *spec);
  if (!good(weights))
    return 0;
  for (const GgufParameter &parameter : weights->parameters) {
    const auto tensor = ggufTensor(parameter, SafetensorsType::f16);
    Counter counter;
    Status status = tensor.emit(counter);
    require(!status.ok() || counter.count == tensor.size);
  }
  readModel(std::make_shared<const GgufFile>(file.take()));
  return 0;
}
