#include "runtime/serve/Adapters.h"

#include <algorithm>
#include <numeric>

namespace tessera::serve {

//===--- slots ------------------------------------------------------------===//

class AdapterSlots::Taken final : public AdapterSlot {
public:
  Taken(std::shared_ptr<AdapterSlots> from, int32_t index, uint64_t id)
      : from(std::move(from)) {
    slot = index;
    number = id;
  }
  Taken(const Taken &) = delete;
  Taken &operator=(const Taken &) = delete;
  ~Taken() override {
    std::lock_guard lock(from->mutex);
    from->unused.push_back(slot);
  }

private:
  std::shared_ptr<AdapterSlots> from;
};

AdapterSlots::AdapterSlots(int64_t count) : total(count), unused(count) {
  std::iota(unused.rbegin(), unused.rend(), 0);
}

std::shared_ptr<const AdapterSlot> AdapterSlots::take() {
  std::lock_guard lock(mutex);
  if (unused.empty())
    return nullptr;
  const int32_t slot = unused.back();
  unused.pop_back();
  return std::make_shared<Taken>(shared_from_this(), slot, ++numbers);
}

//===--- adapters ---------------------------------------------------------===//

Adapters::Adapters(ModelState &model) : model(&model) {
  if (const int64_t count = adapterSlots(model))
    free = std::make_shared<AdapterSlots>(count);
}

Adapters::Entry *Adapters::find(std::string_view name) {
  auto found = std::ranges::find(loaded, name, &Entry::name);
  return found == loaded.end() ? nullptr : &*found;
}

StatusOr<Adapters::Entry>
Adapters::reserve(const std::string &name, const std::string &directory,
                  const std::vector<std::string> &taken) {
  if (!free)
    return Status::error("the programs have no slots for adapters; start the "
                         "server with --adapter-slots N, or compile a packaged "
                         "model with it");
  if (name.empty() || std::ranges::count(taken, name) != 0 || find(name))
    return Status::error("the adapter name '{}' is {}", name,
                         name.empty() ? "empty" : "used already");
  auto slot = free->take();
  if (!slot)
    return Status::error("all {} slots for adapters are used; unload one, or "
                         "raise --adapter-slots",
                         slots());
  return Entry{name, directory, std::move(slot)};
}

StatusOr<Adapters::Prepared> Adapters::read(Entry entry) const {
  auto file = AdapterFile::open(entry.directory);
  if (!file.ok())
    return file.status();
  auto values = readAdapter(*file, *model);
  if (!values.ok())
    return values.status();
  return Prepared{std::move(entry), values.take()};
}

Status Adapters::write(const Prepared &prepared) const {
  return writeAdapter(prepared.values, *model, prepared.entry.slot->slot);
}

void Adapters::replace(Entry entry) {
  if (Entry *before = find(entry.name))
    before->slot = std::move(entry.slot);
  else
    loaded.push_back(std::move(entry));
}

bool Adapters::remove(std::string_view name) {
  return std::erase_if(loaded, [&](const Entry &entry) {
           return entry.name == name;
         }) > 0;
}

Status Adapters::load(const std::string &name, const std::string &directory,
                      const std::vector<std::string> &taken) {
  auto entry = reserve(name, directory, taken);
  if (!entry.ok())
    return entry.status();
  auto prepared = read(entry.take());
  if (!prepared.ok())
    return prepared.status();
  TESSERA_RETURN_IF_ERROR(write(*prepared));
  add(std::move(prepared->entry));
  return Status::success();
}

//===--- metrics ----------------------------------------------------------===//

/// As Prometheus writes the value of a label.
static std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text)
    if (c == '\n')
      out += "\\n";
    else if (c == '"' || c == '\\')
      (out += '\\') += c;
    else
      out += c;
  return out;
}

std::string adapterMetrics(const Adapters &adapters) {
  std::string out;
  if (adapters.slots() > 0)
    out = "# HELP tessera:adapter_requests_total Requests by LoRA adapter.\n"
          "# TYPE tessera:adapter_requests_total counter\n";
  for (const Adapters::Entry &entry : adapters.entries())
    out += fmt::format("tessera:adapter_requests_total{{adapter=\"{}\"}} {}\n",
                       escaped(entry.name), entry.requests);
  return out;
}

} // namespace tessera::serve
