import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The names have no hash: the bundle is committed, and a build of the same sources must give the same files.
export default defineConfig({
  base: "./",
  plugins: [react()],
  build: {
    outDir: "../airflow_cdc/plugins/ui",
    emptyOutDir: true,
    sourcemap: false,
    chunkSizeWarningLimit: 600,
    rollupOptions: {
      output: {
        entryFileNames: "page.js",
        chunkFileNames: "[name].js",
        assetFileNames: "page[extname]",
      },
    },
  },
});
