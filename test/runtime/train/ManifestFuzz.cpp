// libFuzzer target: whatever the bytes, a checkpoint's manifest.json is read or
// refused with one line, and what is read prints to a text that reads back
// equal. A fuzzer never guesses a hash, so the bytes are also tried with the
// right one put in.
#include "runtime/data/ShallowJson.h"
#include "runtime/support/Hash.h"
#include "runtime/train/Manifest.h"

#include <cstdlib>

using namespace tessera;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

static std::string dump(const nlohmann::json &value) {
  return value.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

static void tryText(std::string_view text) {
  StatusOr<CheckpointManifest> manifest = parseManifest(text, "fuzz");
  if (!manifest.ok()) {
    require(!manifest.message().empty() &&
            manifest.message().find('\n') == std::string::npos);
    return;
  }
  for (const CheckpointFile &file : manifest->files)
    require(file.name.find('/') == std::string::npos);
  std::string printed = printManifest(*manifest);
  StatusOr<CheckpointManifest> again = parseManifest(printed, "printed");
  require(again.ok() && printManifest(*again) == printed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view text(reinterpret_cast<const char *>(data), size);
  tryText(text);
  nlohmann::json object = parseShallowJson(text);
  if (!object.is_object())
    return 0;
  constexpr const char *key = "manifest_xxh3_64";
  object.erase(key);
  std::string rest = dump(object);
  object[key] = fmt::format(
      "{:016x}", hash64(std::as_bytes(std::span(rest.data(), rest.size()))));
  tryText(dump(object));
  return 0;
}
