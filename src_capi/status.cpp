#include <cstring>

#include "cpu_features.h"
#include "dispatch.h"
#include "handles.h"

namespace intattention::capi {
namespace {

constexpr size_t kMaxText = 512;
thread_local char last_error[kMaxText] = "";  // no std::string: recording an error must not fail

}  // namespace

InUse::InUse(std::atomic<bool>* flag) : flag_(flag) {
  if (flag->exchange(true, std::memory_order_acquire)) throw Busy("the cache or sampler is in use by another call");
}

ia_status failed(ia_status status, const char* text) noexcept {
  std::strncpy(last_error, text, kMaxText - 1);
  return status;
}

ia_status current_exception_status() noexcept {
  try {
    throw;
  } catch (const InvalidArgument& error) {
    return failed(IA_INVALID_ARGUMENT, error.what());
  } catch (const ContextOverflow& error) {
    return failed(IA_CONTEXT_OVERFLOW, error.what());
  } catch (const NumericError& error) {
    return failed(IA_NUMERIC, error.what());
  } catch (const UnsupportedIsa& error) {
    return failed(IA_UNSUPPORTED_ISA, error.what());
  } catch (const UnsupportedModel& error) {
    return failed(IA_UNSUPPORTED_MODEL, error.what());
  } catch (const ModelFileError& error) {
    return failed(IA_BAD_FILE, error.what());
  } catch (const FileError& error) {
    return failed(IA_IO, error.what());
  } catch (const Cancelled& error) {
    return failed(IA_CANCELLED, error.what());
  } catch (const Busy& error) {
    return failed(IA_BUSY, error.what());
  } catch (const std::bad_alloc&) {
    return failed(IA_OUT_OF_MEMORY, "out of memory");
  } catch (const std::length_error&) {  // a std::vector asked for more than the address space
    return failed(IA_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return failed(IA_INTERNAL, error.what());
  } catch (...) {
    return failed(IA_INTERNAL, "unknown exception");
  }
}

}  // namespace intattention::capi

using namespace intattention;
using namespace intattention::capi;

unsigned ia_version(void) { return IA_VERSION; }

const char* ia_status_name(ia_status status) {
  switch (status) {
    case IA_OK:
      return "IA_OK";
    case IA_INVALID_ARGUMENT:
      return "IA_INVALID_ARGUMENT";
    case IA_OUT_OF_MEMORY:
      return "IA_OUT_OF_MEMORY";
    case IA_UNSUPPORTED_ISA:
      return "IA_UNSUPPORTED_ISA";
    case IA_UNSUPPORTED_MODEL:
      return "IA_UNSUPPORTED_MODEL";
    case IA_IO:
      return "IA_IO";
    case IA_BAD_FILE:
      return "IA_BAD_FILE";
    case IA_CONTEXT_OVERFLOW:
      return "IA_CONTEXT_OVERFLOW";
    case IA_NUMERIC:
      return "IA_NUMERIC";
    case IA_CANCELLED:
      return "IA_CANCELLED";
    case IA_BUSY:
      return "IA_BUSY";
    case IA_INTERNAL:
      return "IA_INTERNAL";
    default:
      return "unknown status";
  }
}

const char* ia_last_error(void) { return last_error; }

ia_status ia_active_isa(const char** name) {
  return guarded([&] { required(name, "name") = active_table().name; });
}

const char* ia_runnable_isa(size_t index) {
  const char* name = nullptr;
  guarded([&] {
    const std::vector<const KernelTable*> tables = runnable_tables();
    if (index < tables.size()) name = tables[index]->name;
  });
  return name;
}
