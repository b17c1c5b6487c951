#include "runtime/data/tokenizer/Documents.h"
#include "runtime/data/Json.h"
#include "runtime/support/MappedFile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <unistd.h>

namespace tessera::tokenizer {

namespace fs = std::filesystem;

/// The documents of a JSON Lines file.
static Status readJsonLines(const std::string &path, const DocumentSink &sink) {
  StatusOr<MappedFile> file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  std::string_view rest = file->text();
  for (size_t number = 1; !rest.empty(); ++number) {
    size_t length = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, length);
    rest.remove_prefix(std::min(length + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos)
      continue;
    auto root = JsonValue::parse(line, fmt::format("{}:{}", path, number));
    if (!root.ok())
      return root.status();
    std::string_view text;
    if (!(*root)["text"].get(text))
      return Status::error("{}:{}: must be an object with a string \"text\"",
                           path, number);
    if (!text.empty())
      TESSERA_RETURN_IF_ERROR(sink(std::string(text)));
  }
  return Status::success();
}

static Status readFileDocuments(const std::string &path,
                                const DocumentSink &sink) {
  if (path.ends_with(".jsonl"))
    return readJsonLines(path, sink);
  StatusOr<MappedFile> file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  return file->text().empty() ? Status::success()
                              : sink(std::string(file->text()));
}

/// The .txt and .jsonl files below `folder`, sorted.
static StatusOr<std::vector<std::string>>
listFolder(const std::string &folder) {
  std::vector<std::string> paths;
  std::error_code code;
  fs::recursive_directory_iterator at(folder, code), end;
  while (!code && at != end) {
    fs::path path = at->path();
    if (path.extension() == ".txt" || path.extension() == ".jsonl")
      paths.push_back(path.string());
    at.increment(code);
  }
  if (code)
    return Status::error("{}: cannot list the folder: {}", folder,
                         code.message());
  if (paths.empty())
    return Status::error("{}: holds no .txt or .jsonl file", folder);
  std::sort(paths.begin(), paths.end());
  return paths;
}

Status checkInputs(const std::vector<std::string> &inputs) {
  for (const std::string &input : inputs) {
    std::error_code code;
    if (fs::is_directory(input, code))
      TESSERA_RETURN_IF_ERROR(listFolder(input).status());
    else if (::access(input.c_str(), R_OK) != 0)
      return Status::error("{}: cannot open: {}", input, std::strerror(errno));
  }
  return Status::success();
}

Status forEachDocument(const std::vector<std::string> &inputs,
                       const DocumentSink &sink) {
  TESSERA_RETURN_IF_ERROR(checkInputs(inputs));
  uint64_t documents = 0;
  DocumentSink counting = [&](std::string document) {
    ++documents;
    return sink(std::move(document));
  };
  for (const std::string &input : inputs) {
    std::error_code code;
    if (!fs::is_directory(input, code)) {
      TESSERA_RETURN_IF_ERROR(readFileDocuments(input, counting));
      continue;
    }
    StatusOr<std::vector<std::string>> paths = listFolder(input);
    if (!paths.ok())
      return paths.status();
    for (const std::string &path : *paths)
      TESSERA_RETURN_IF_ERROR(readFileDocuments(path, counting));
  }
  if (documents == 0)
    return Status::error("{}: no document with any text in it",
                         inputs.empty() ? "no input" : inputs.front());
  return Status::success();
}

} // namespace tessera::tokenizer
