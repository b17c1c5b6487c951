#include "compiler/report/EventFile.h"

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "compiler/report/RunReport.h"
#include "runtime/support/Text.h"

namespace tessera::report {

namespace fs = std::filesystem;

//===--- bytes -----------------------------------------------------------===//

template <typename T> static void append(std::string &out, T value) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof bytes);
}

// CRC-32C (Castagnoli), bit-reversed polynomial 0x82f63b78.
static std::uint32_t crc32c(std::string_view bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t i = 0; i < made.size(); ++i) {
      made[i] = i;
      for (int bit = 0; bit < 8; ++bit)
        made[i] = (made[i] >> 1) ^ (made[i] & 1 ? 0x82f63b78u : 0u);
    }
    return made;
  }();
  std::uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = table[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

// TFRecord: length, its checksum, the bytes, theirs. Checksums are masked,
// since that of bytes with a checksum in them is a bad one.
static void appendRecord(std::string &out, std::string_view bytes) {
  auto masked = [](std::string_view of) {
    const std::uint32_t crc = crc32c(of);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  };
  std::string length;
  append(length, static_cast<std::uint64_t>(bytes.size()));
  out += length;
  append(out, masked(length));
  out += bytes;
  append(out, masked(bytes));
}

//===--- protocol buffers ------------------------------------------------===//

enum class Wire : unsigned { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

static void appendVarint(std::string &out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

static void appendTag(std::string &out, unsigned field, Wire wire) {
  appendVarint(out, (field << 3) | static_cast<unsigned>(wire));
}

static void appendBytes(std::string &out, unsigned field,
                        std::string_view bytes) {
  appendTag(out, field, Wire::bytes);
  appendVarint(out, bytes.size());
  out += bytes;
}

/// tensorflow.Event, as far as scalars need it: wall_time = 1, step = 2,
/// file_version = 3, summary = 5 with a value = 1 for each scalar, which has
/// tag = 1 and simple_value = 2.
class Event {
public:
  Event(double time, std::int64_t step) {
    appendTag(bytes, 1, Wire::fixed64);
    append(bytes, time);
    appendTag(bytes, 2, Wire::varint);
    appendVarint(bytes, static_cast<std::uint64_t>(step));
  }
  void addScalar(std::string_view tag, double number) {
    std::string value;
    appendBytes(value, 1, tag);
    appendTag(value, 2, Wire::fixed32);
    append(value, static_cast<float>(number));
    appendBytes(summary, 1, value);
  }
  void appendTo(std::string &file) {
    if (!summary.empty())
      appendBytes(bytes, 5, summary);
    appendRecord(file, bytes);
  }

private:
  std::string bytes, summary;
};

//===--- metrics ---------------------------------------------------------===//

static void addScalars(Event &event, const Json &record) {
  for (const auto &[key, value] : record.items())
    if (key == "eval_loss" && value.is_number())
      event.addScalar("eval/loss", value.get<double>());
    else if (key != "step" && value.is_number())
      event.addScalar("train/" + key, value.get<double>());
    else if (key == "router" && value.is_object())
      for (const auto &[name, layers] : value.items())
        for (std::size_t layer = 0; layers.is_array() && layer < layers.size();
             ++layer)
          if (layers[layer].is_number())
            event.addScalar(fmt::format("router/{}/{}", name, layer),
                            layers[layer].get<double>());
}

static double secondsOf(const Json &record) {
  const auto found = record.find("step_time");
  const double time =
      found != record.end() && found->is_number() ? found->get<double>() : 0;
  return std::isfinite(time) ? time : 0;
}

static double startOf(const std::vector<Json> &records, double end) {
  for (const Json &record : records)
    end -= secondsOf(record);
  return end;
}

static std::string eventsOf(const std::vector<Json> &records, double start) {
  std::string file, version;
  appendTag(version, 1, Wire::fixed64);
  append(version, start);
  appendBytes(version, 3, "brain.Event:2");
  appendRecord(file, version);
  double time = start;
  for (const Json &record : records) {
    time += secondsOf(record);
    Event event(time, record["step"].get<std::int64_t>());
    addScalars(event, record);
    event.appendTo(file);
  }
  return file;
}

StatusOr<std::string> eventFile(std::string_view metrics,
                                const std::string &path, double end) {
  auto records = metricsRecords(metrics, path);
  if (!records.ok())
    return records.status();
  return eventsOf(*records, startOf(*records, end));
}

// TensorBoard reads all event files of a directory as one run.
static void removeEarlier(const std::string &directory) {
  std::error_code ignored;
  for (const auto &entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("events.out.tfevents.") && name.ends_with(".tessera"))
      fs::remove(entry.path(), ignored);
  }
}

Status writeEventFile(const std::string &run, const std::string &directory) {
  const std::string path = run + "/metrics.jsonl";
  auto text = readTextFile(path, kMostMetricsBytes);
  if (!text.ok())
    return text.status();
  auto records = metricsRecords(*text, path);
  if (!records.ok())
    return records.status();
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  const double end =
      error ? 0
            : std::chrono::duration<double>(
                  std::chrono::file_clock::to_sys(written).time_since_epoch())
                  .count();
  const double start = startOf(*records, end);
  fs::create_directories(directory, error);
  removeEarlier(directory);
  const std::string to = fmt::format("{}/events.out.tfevents.{:.0f}.tessera",
                                     directory, std::max(0.0, start));
  std::ofstream file(to, std::ios::binary);
  file << eventsOf(*records, start);
  file.close();
  return file ? Status::success()
              : Status::error("{}: cannot be written; choose another directory",
                              to);
}

} // namespace tessera::report
