#include "runtime/hal/cuda/TuningFile.h"

#include "runtime/support/CacheFolder.h"
#include "runtime/support/Hash.h"

#include <fstream>
#include <span>
#include <sstream>
#include <unistd.h>

namespace tessera::hal::cuda {
namespace {

constexpr std::string_view kTitle = "tessera tuning 1";
constexpr std::size_t kMostBytes = 1 << 20;

} // namespace

TuningFile::TuningFile(std::string key)
    : key(std::move(key)), path(userCacheFolder()) {
  if (path.empty())
    return;
  path /= "tuning";
  path /=
      fmt::format("{:016x}.txt", hash64(std::as_bytes(std::span(this->key))));
  read();
}

void TuningFile::read() {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error || bytes > kMostBytes)
    return;
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!std::getline(file, line) || line != kTitle ||
      !std::getline(file, line) || line != "key " + key)
    return;
  std::map<std::string, std::string, std::less<>> known;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string kernel, choice, more;
    if (!(words >> kernel >> choice) || words >> more || file.eof())
      return; // torn, or none of ours
    known.insert_or_assign(std::move(kernel), std::move(choice));
  }
  choices = std::move(known);
}

std::optional<std::string> TuningFile::find(std::string_view kernel) const {
  const auto found = choices.find(kernel);
  if (found == choices.end())
    return std::nullopt;
  return found->second;
}

void TuningFile::set(std::string_view kernel, std::string_view choice) {
  choices.insert_or_assign(std::string(kernel), std::string(choice));
  isChanged = true;
}

Status TuningFile::write() const {
  if (path.empty() || !isChanged)
    return Status::success();
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::filesystem::path whole = path;
  whole += fmt::format(".{}", ::getpid());
  std::ofstream file(whole, std::ios::binary | std::ios::trunc);
  file << kTitle << "\nkey " << key << '\n';
  for (const auto &[kernel, choice] : choices)
    file << kernel << ' ' << choice << '\n';
  file.close();
  if (file)
    std::filesystem::rename(whole, path, error);
  if (file && !error)
    return Status::success();
  const std::string cause = error ? error.message() : "cannot write it";
  std::filesystem::remove(whole, error);
  return Status::error("{}: {}; kernels are timed again at every start",
                       path.string(), cause);
}

} // namespace tessera::hal::cuda
