#include "runtime/data/Safetensors.h"
#include "test/runtime/data/TestData.h"

#include <cstring>
#include <fstream>

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::testing;

namespace {

std::string fileOf(const std::string &header, std::size_t dataBytes) {
  uint64_t length = header.size();
  std::string file(reinterpret_cast<const char *>(&length), 8);
  return file + header + std::string(dataBytes, '\0');
}

StatusOr<SafetensorsHeader> parse(const std::string &file) {
  return parseSafetensors(std::as_bytes(std::span(file.data(), file.size())),
                          file.size());
}

class StringSink : public SafetensorsSink {
public:
  Status write(std::span<const std::byte> bytes) override {
    text.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    return Status::success();
  }
  std::string text;
};

const std::string kEntry =
    R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";

/// Headers over four data bytes and what the reference makes of them; checked
/// against it by test/oracle/safetensors_oracle.py.
struct Case {
  const char *name;
  std::string header;
  const char *error; ///< part of ours; null: accepted
};

std::vector<Case> cases() {
  auto entry = [](const std::string &dtype, const std::string &shape,
                  const std::string &offsets, const std::string &more = "") {
    return "{\"a\":{\"dtype\":" + dtype + ",\"shape\":" + shape +
           ",\"data_offsets\":" + offsets + more + "}}";
  };
  const std::string f32 = "\"F32\"";
  auto nested = [&](int levels) {
    return entry(f32, "[1]", "[0,4]",
                 ",\"x\":" + std::string(levels, '[') +
                     std::string(levels, ']'));
  };
  return {
      {"plain", "{\"a\":" + kEntry + "}", nullptr},
      {"spaces around", " \n{\"a\":" + kEntry + "}\t ", nullptr},
      {"repeated name", "{\"a\":" + kEntry + ",\"a\":" + kEntry + "}", nullptr},
      {"metadata", R"({"__metadata__":{"k":"v"},"a":)" + kEntry + "}", nullptr},
      {"null metadata", R"({"__metadata__":null,"a":)" + kEntry + "}", nullptr},
      {"bare array", R"({"a":["F32",[1],[0,4]]})", nullptr},
      {"variant map", entry(R"({"F32":null})", "[1]", "[0,4]"), nullptr},
      {"extra field", entry(f32, "[1]", "[0,4]", R"(,"x":{"y":[1.5,null]})"),
       nullptr},
      {"big integer ignored",
       entry(f32, "[1]", "[0,4]", ",\"x\":123456789012345678901234567890"),
       nullptr},
      {"nested to the limit", nested(125), nullptr},
      {"scalar", entry(f32, "[]", "[0,4]"), nullptr},
      {"packed", entry("\"F4\"", "[8]", "[0,4]"), nullptr},
      {"empty name", "{\"\":" + kEntry + "}", nullptr},
      {"escaped name", "{\"\\u0000\\ud83d\\ude00\":" + kEntry + "}", nullptr},

      {"nested too deep", nested(126), "nests deeper than 127"},
      {"byte order mark", "\xef\xbb\xbf{\"a\":" + kEntry + "}", "byte order"},
      {"trailing NUL", "{\"a\":" + kEntry + "}" + std::string(1, '\0'), "NUL"},
      {"array header", "[]", "must be a json object, got: an array"},
      {"null header", "null", "must be a json object, got: null"},
      {"no header", "", "not valid json"},
      {"two documents", "{\"a\":" + kEntry + "}{}", "not valid json"},
      {"trailing comma", "{\"a\":" + kEntry + ",}", "not valid json"},
      {"lone surrogate", "{\"\\ud800\":" + kEntry + "}", "not valid json"},
      {"invalid UTF-8", "{\"\xc0\x80\":" + kEntry + "}", "not valid json"},
      {"repeated metadata",
       R"({"__metadata__":{},"__metadata__":{},"a":)" + kEntry + "}", "twice"},
      {"metadata of numbers", R"({"__metadata__":{"k":1},"a":)" + kEntry + "}",
       "__metadata__ 'k' must be a string, got: a number"},
      {"metadata a string", R"({"__metadata__":"x","a":)" + kEntry + "}",
       "cannot be a string"},
      {"repeated field", entry(f32, "[1]", "[0,4]", ",\"shape\":[1]"),
       "'a' has the field 'shape' twice"},
      {"missing field", R"({"a":{"dtype":"F32","shape":[1]}})",
       "'a' has no field 'data_offsets'"},
      {"bad entry overridden", "{\"a\":null,\"a\":" + kEntry + "}",
       "'a' cannot be null"},
      {"unknown dtype", entry("\"f32\"", "[1]", "[0,4]"),
       "unknown dtype 'f32'"},
      {"number for dtype", entry("0", "[1]", "[0,4]"), "dtype cannot be"},
      {"variant of object", entry(R"({"F32":{}})", "[1]", "[0,4]"), "dtype"},
      {"two variants", entry(R"({"F32":null,"F32":null})", "[1]", "[0,4]"),
       "dtype"},
      {"no variant", entry("{}", "[1]", "[0,4]"), "dtype"},
      {"float in shape", entry(f32, "[1.0]", "[0,4]"), "shape cannot"},
      {"minus zero", entry(f32, "[1]", "[-0,4]"), "negative"},
      {"shape of null", entry(f32, "null", "[0,4]"), "shape cannot be"},
      {"shape nested", entry(f32, "[[1]]", "[0,4]"), "shape cannot be"},
      {"three offsets", entry(f32, "[1]", "[0,4,5]"), "2 numbers, got: 3"},
      {"offsets of object", entry(f32, "[1]", R"({"0":0,"1":4})"),
       "data_offsets cannot be"},
      {"four items", R"({"a":["F32",[1],[0,4],0]})", "more than three items"},
      {"two items", R"({"a":["F32",[1]]})", "no field 'data_offsets'"},
      {"number out of range", entry(f32, "[1]", "[0,4]", ",\"x\":1e400"),
       "not valid json"},
      {"size and shape differ", entry(f32, "[2]", "[0,4]"),
       "has 4 bytes, but its shape and dtype F32 need 8"},
      {"shape overflows", entry(f32, "[18446744073709551615,2,0]", "[0,0]"),
       "overflows 64 bits"},
      {"bits overflow", entry(f32, "[576460752303423488]", "[0,0]"),
       "overflows 64 bits"},
      {"half a byte", entry("\"F4\"", "[3]", "[0,4]"), "whole bytes"},
      {"hole", entry(f32, "[0]", "[1,1]"), "the tensor before it ends at 0"},
      {"reversed", entry(f32, "[1]", "[4,0]"), "is at bytes 4 to 0"},
      {"overlap",
       R"({"a":)" + kEntry + R"(,"b":{"dtype":"F32","shape":[1],)" +
           R"("data_offsets":[2,6]}})",
       "'b' is at bytes 2 to 6"},
      {"bytes left over", "{}",
       "need 0 bytes after the header, but the file "
       "has 4"},
      {"name of two lines", "{\"a\\nb\":null}", "'a\\nb' cannot be null"},
  };
}

} // namespace

TEST(Safetensors, AcceptsWhatTheReferenceAccepts) {
  for (const Case &each : cases()) {
    StatusOr<SafetensorsHeader> header = parse(fileOf(each.header, 4));
    EXPECT_EQ(header.ok(), each.error == nullptr)
        << each.name << ": " << header.message();
    if (each.error)
      EXPECT_NE(header.message().find(each.error), std::string::npos)
          << each.name << ": " << header.message();
  }
}

TEST(Safetensors, LengthsAreProvenBeforeTheyAreUsed) {
  std::string file = fileOf("{\"a\":" + kEntry + "}", 4);
  for (uint64_t length :
       {uint64_t(0), uint64_t(1), file.size() - 12, file.size() - 8,
        file.size() - 7, file.size(), uint64_t(100'000'000),
        uint64_t(100'000'001), uint64_t(1) << 63, ~uint64_t(0)}) {
    if (length == file.size() - 12)
      continue; // the true one
    std::string broken = file;
    std::memcpy(broken.data(), &length, 8);
    EXPECT_FALSE(parse(broken).ok()) << length;
  }
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_FALSE(parse(file.substr(0, size)).ok()) << size;
  EXPECT_FALSE(parse(file + '\0').ok());
}

TEST(Safetensors, LastOfARepeatedNameCounts) {
  auto header = parse(
      fileOf(R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]},"a":)" +
                 kEntry + "}",
             4));
  ASSERT_TRUE(header.ok()) << header.message();
  ASSERT_EQ(header->tensors.size(), 1u);
  EXPECT_EQ(header->tensors[0].type, SafetensorsType::f32);
}

TEST(Safetensors, ErrorsShowLongNamesShortened) {
  auto header = parse(fileOf("{\"" + std::string(100000, 'n') + "\":null}", 0));
  ASSERT_FALSE(header.ok());
  EXPECT_LT(header.message().size(), 300u);
}

/// Two tensors as `safetensors.serialize` 0.8.0 wrote them.
TEST(Safetensors, WritesByteForByteWhatTheReferenceWrites) {
  const char bytes[6] = {1, 2, 3, 4, 5, 6};
  auto emit = [&](std::size_t from, std::size_t count) {
    return [&bytes, from, count](SafetensorsSink &sink) {
      return sink.write(std::as_bytes(std::span(bytes + from, count)));
    };
  };
  StringSink sink;
  ASSERT_TRUE(
      writeSafetensors(sink,
                       {{"b\"\n", SafetensorsType::u8, {2}, 2, emit(4, 2)},
                        {"a", SafetensorsType::f32, {1, 1}, 4, emit(0, 4)}},
                       {{"format", "pt"}})
          .ok());
  std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,1],)"
      R"("data_offsets":[0,4]},"b\"\n":{"dtype":"U8","shape":[2],)"
      R"("data_offsets":[4,6]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(sink.text, fileOf(header, 0) + std::string(bytes, 6));
  auto parsed = parse(sink.text);
  ASSERT_TRUE(parsed.ok()) << parsed.message();
  EXPECT_EQ(parsed->metadata.at("format"), "pt");
  EXPECT_NE(parsed->find("b\"\n"), nullptr);
  EXPECT_EQ(parsed->find("c"), nullptr);
}

TEST(Safetensors, WhatIsNotAsLongAsItsHeaderSaysIsNotWritten) {
  const std::byte bytes[8] = {};
  for (std::size_t count : {0, 5, 7, 8}) {
    StringSink sink;
    Status status =
        writeSafetensors(sink,
                         {{"a",
                           SafetensorsType::u8,
                           {6},
                           6,
                           [&](SafetensorsSink &to) {
                             return to.write(std::span(bytes).first(count));
                           }}},
                         {});
    ASSERT_FALSE(status.ok()) << count;
    EXPECT_EQ(status.message(),
              fmt::format("'a' has 6 bytes in the header, but {} were to be "
                          "written; please report this",
                          count));
  }
}

TEST(Safetensors, AFileThatShrinksIsAnErrorAndNoCrash) {
  ScratchDirectory directory;
  std::string path = directory / "x.safetensors";
  std::ofstream(path, std::ios::binary) << fileOf("{\"a\":" + kEntry + "}", 4);
  auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.message();
  const SafetensorsEntry &entry = file->header().tensors[0];
  std::vector<std::byte> out(4);
  EXPECT_TRUE(file->read(entry, 0, out).ok());
  EXPECT_FALSE(file->read(entry, 1, out).ok());
  EXPECT_FALSE(file->read(entry, ~uint64_t(0), out).ok());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_NE(file->read(entry, 0, out).message().find("it was longer"),
            std::string::npos);
}

TEST(Safetensors, OpensOnlyRegularFiles) {
  ScratchDirectory directory;
  EXPECT_FALSE(SafetensorsFile::open(directory.path).ok());
  EXPECT_FALSE(SafetensorsFile::open(directory / "absent").ok());
  EXPECT_FALSE(SafetensorsFile::open("/dev/null").ok());
}
