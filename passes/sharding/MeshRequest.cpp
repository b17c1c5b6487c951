#include "passes/sharding/MeshRequest.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace tessera;

// The slowest-varying first: neighbours along the last axis talk most.
static constexpr llvm::StringLiteral kAxes[] = {"pipe", "data", "expert",
                                                "context", "tensor"};
static constexpr int64_t kMostDevices = int64_t{1} << 20;

static llvm::Error complain(llvm::StringRef text, const llvm::Twine &what) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 "--mesh " + text + ": " + what);
}

// A name as it is, a file as what stands in it.
static llvm::Error readSchedule(llvm::StringRef text, llvm::StringRef value,
                                std::string &schedule) {
  if (!schedule.empty() || value.empty())
    return complain(text, value.empty()
                              ? "schedule wants a name, such as 1f1b, "
                                "or a FILE.csv"
                              : "'schedule' stands there twice");
  schedule = value.str();
  if (!value.ends_with(".csv"))
    return llvm::Error::success();
  auto file = llvm::MemoryBuffer::getFile(value);
  if (!file)
    return complain(text,
                    "cannot read " + value + ": " + file.getError().message());
  schedule = (*file)->getBuffer().str();
  return llvm::Error::success();
}

static llvm::Error readAsync(llvm::StringRef text, llvm::StringRef value,
                             std::optional<Async> &async) {
  if (async)
    return complain(text, "'async' stands there twice");
  async = llvm::StringSwitch<std::optional<Async>>(value)
              .Case("auto", Async::Auto)
              .Case("on", Async::On)
              .Case("off", Async::Off)
              .Default(std::nullopt);
  if (!async)
    return complain(text, "async is auto, on or off, got '" + value + "'");
  return llvm::Error::success();
}

llvm::Expected<MeshRequest> tessera::parseMeshRequest(llvm::StringRef text,
                                                      int64_t world) {
  MeshRequest request;
  if (text.empty() && world <= 1)
    return request;
  if (text.empty())
    return complain("data=" + std::to_string(world),
                    "name the axes of " + llvm::Twine(world) + " devices");
  llvm::StringMap<int64_t> values;
  std::optional<Async> async;
  llvm::SmallVector<llvm::StringRef> parts;
  text.split(parts, ',');
  for (llvm::StringRef part : parts) {
    auto [name, number] = part.split('=');
    if (name == "schedule") {
      if (llvm::Error error = readSchedule(text, number, request.schedule))
        return std::move(error);
      continue;
    }
    if (name == "async") {
      if (llvm::Error error = readAsync(text, number, async))
        return std::move(error);
      continue;
    }
    int64_t value = 0;
    if (number.getAsInteger(10, value))
      return complain(text, "'" + part +
                                "' is not of the form AXIS=SIZE, such as "
                                "data=2");
    bool zero = name == "zero";
    if (!zero && name != "chunks" && !llvm::is_contained(kAxes, name))
      return complain(text, "unknown axis '" + name +
                                "'; there are data, expert, context, tensor, "
                                "pipe, zero=0, 1, 2 or 3 for what is cut over "
                                "data, expert and context, schedule and chunks "
                                "for what is done over pipe, async=auto, on or "
                                "off for what is done over tensor");
    if (zero ? value < 0 || value > 3 : value < 1 || value > kMostDevices)
      return complain(text, zero ? "zero is 0, 1, 2 or 3"
                                 : "an axis has 1 to 1048576 devices, got '" +
                                       part + "'");
    if (!values.try_emplace(name, value).second)
      return complain(text, "'" + name + "' stands there twice");
  }
  for (llvm::StringRef axis : kAxes) {
    auto size = values.find(axis);
    if (size == values.end())
      continue;
    if (llvm::MulOverflow(request.devices, size->second, request.devices) ||
        request.devices > kMostDevices)
      return complain(text, "more than 1048576 devices");
    request.axes += (request.axes.empty() ? "" : ",") + axis.str() + "=" +
                    std::to_string(size->second);
  }
  if (world != 0 && world != request.devices)
    return complain(text, "has " + llvm::Twine(request.devices) +
                              " devices and --world says " +
                              llvm::Twine(world));
  if (auto zero = values.find("zero"); zero != values.end())
    request.zero = zero->second;
  if (request.zero > 0 && !values.count("data") && !values.count("expert") &&
      !values.count("context"))
    return complain(text, "zero cuts state over the axes data, expert and "
                          "context; name the size of one");
  if (async && !values.count("tensor"))
    return complain(text, "async is of the axis tensor; name its size");
  request.async = async.value_or(Async::Auto);
  bool isPipe = values.count("pipe");
  if (!isPipe && (!request.schedule.empty() || values.count("chunks")))
    return complain(text, "schedule and chunks are of the axis pipe; name its "
                          "size");
  if (isPipe && request.schedule.empty())
    request.schedule = "1f1b";
  if (auto chunks = values.find("chunks"); chunks != values.end())
    request.chunks = chunks->second;
  return request;
}
