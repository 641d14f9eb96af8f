# The only place with ISA flags. They go on kernel files alone, by suffix, so that no code compiled for
# a better CPU can end up in a baseline function.
function(intattention_set_isa_flags)
  foreach(file IN LISTS ARGN)
    if(file MATCHES "_avx2\\.cpp$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-mavx2;-mf16c")
    elseif(file MATCHES "_avxvnni\\.cpp$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-mavx2;-mf16c;-mavxvnni")
    # GCC 12 warns of its own avx512 header (GCC bug 105593), hence -Wno-maybe-uninitialized.
    elseif(file MATCHES "_avx512vnni\\.cpp$")
      set_source_files_properties(
        ${file} PROPERTIES COMPILE_OPTIONS "-mavx2;-mf16c;-mavx512f;-mavx512bw;-mavx512vl;-mavx512vnni;-Wno-maybe-uninitialized")
    elseif(file MATCHES "_dotprod\\.cpp$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod")
    elseif(file MATCHES "_i8mm\\.cpp$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod+i8mm")
    endif()
  endforeach()
endfunction()
