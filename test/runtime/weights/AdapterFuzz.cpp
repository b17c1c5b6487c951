// libFuzzer target: whatever its two files hold, an adapter is read or refused
// with one line; what is read fits a slot of a model, or is refused so. The
// bytes are adapter_config.json, a zero and adapter_model.safetensors.
#include "runtime/weights/AdapterFile.h"
#include "test/runtime/weights/AdapterSlotsModel.h"
#include "test/support/RequireAnswer.h"
#include "test/support/ScratchDirectory.h"

#include <algorithm>
#include <array>
#include <fstream>

using namespace tessera;
using namespace tessera::testing;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

/// A new file, because to write over one may wait for the disk.
static void writeTo(const std::string &path, std::string_view text) {
  std::filesystem::remove(path);
  std::ofstream file(path, std::ios::binary);
  require(bool(file.write(text.data(), std::streamsize(text.size())).flush()));
}

/// A model without magnitudes, and one with.
static std::array<AdapterSlotsModel, 2> makeModels() {
  std::array<AdapterSlotsModel, 2> models;
  models[1].addMagnitudes({3, 4, 0, 0, 0, 1});
  return models;
}

static void fillSlot(const AdapterFile &adapter, AdapterSlotsModel &model) {
  auto values = readAdapter(adapter, model);
  requireAnswer(values);
  if (!values.ok())
    return;
  const auto slots = uint64_t(adapterSlots(model));
  for (const auto &[tensor, bytes] : values->factors)
    require(bytes.size() * slots == tensor->size);
  require(writeAdapter(*values, model, int64_t(slots) - 1).ok());
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const ScratchDirectory folder;
  static std::array<AdapterSlotsModel, 2> models = makeModels();
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  const size_t end = std::min(text.find('\0'), size);
  writeTo(folder / "adapter_config.json", text.substr(0, end));
  writeTo(folder / "adapter_model.safetensors",
          text.substr(std::min(end + 1, size)));
  auto adapter = AdapterFile::open(folder.path);
  requireAnswer(adapter);
  if (!adapter.ok())
    return 0;
  require(adapter->rank() > 0 && !adapter->targets().empty());
  for (AdapterSlotsModel &model : models)
    fillSlot(*adapter, model);
  return 0;
}
